// The promises that are checked after every step, one sentence each. 1-7 are the RFC's invariants.
#pragma once

#include <string>

namespace maru::sim {

enum class Rule {
    ReadyAfterWrite,
    ContentImmutable,
    AcquireProtects,
    RetireBlocks,
    NoReuseUnderReader,
    ChargeUntilProof,
    EpochFences,
    GenerationFences,
    OperationOnce,
    LedgerStable,
    OwnerIsolation,
    NamespaceIsolation,
    TokenBinds,
    OneWorker,
    HitKept,
    HonestServed,
    OneReply,
    NothingLeft,
    SelfCheck,
};

struct RuleText {
    Rule rule;
    const char *name;
    const char *sentence;
};

inline constexpr RuleText kRules[] = {
    {Rule::ReadyAfterWrite, "1:ready-after-write",
     "A replica is READY only after every page of it was written, in a segment that is mapped and "
     "sealed."},
    {Rule::ContentImmutable, "2:content-immutable",
     "Two live replicas never share a page, and the pages of a READY replica are never rewritten."},
    {Rule::AcquireProtects, "3:acquire-protects",
     "Acquire gives only what is READY, complete and exactly described, all parts or none, and its "
     "lease holds."},
    {Rule::RetireBlocks, "4:retire-blocks",
     "A RETIRING or FREED replica is never probed as a hit and never acquired."},
    {Rule::NoReuseUnderReader, "5:no-reuse-under-reader",
     "A page is not freed, reused or rewritten while a lease or a reader is on it."},
    {Rule::ChargeUntilProof, "6:charge-until-proof",
     "Capacity is not credited, nor granted to another, while memory behind it may be touched or "
     "its owner has not acknowledged."},
    {Rule::EpochFences, "7:epoch-fences",
     "A request or an id of an earlier life of marud has no effect."},
    {Rule::GenerationFences, "7:generation-fences",
     "A name of a wrong generation, a second release, or another's lease changes nothing; "
     "generations of a page only grow."},
    {Rule::OperationOnce, "7:operation-once",
     "An operation id is applied at most once, never with other content, and never at or below the "
     "watermark or after ABSENT."},
    {Rule::LedgerStable, "7:ledger-stable",
     "A retried operation gets its first result, and resolve tells the truth."},
    {Rule::OwnerIsolation, "owner-isolation",
     "Another engine's private copy is never a hit, never suppresses a placement, and its "
     "descriptors go to its owner alone."},
    {Rule::NamespaceIsolation, "namespace-isolation",
     "Two namespaces never answer for each other, also after a restart: the bytes read are those "
     "of the object asked for; a namespace belongs to one uid, and only its sessions work in it."},
    {Rule::TokenBinds, "token-binds", "A session answers only to the process that opened it."},
    {Rule::OneWorker, "one-worker", "An engine has at most one attached worker."},
    {Rule::HitKept, "hit-kept",
     "A READY replica of an attached worker is a hit, also after a restart of marud."},
    {Rule::HonestServed, "honest-served",
     "A correct request of a correct client is not refused as wrong."},
    {Rule::OneReply, "one-reply",
     "Every request gets exactly one reply of the right kind, or its connection is closed."},
    {Rule::NothingLeft, "nothing-left",
     "When all clients have left and all exits are proven, no session, lease, replica or charge "
     "remains."},
    {Rule::SelfCheck, "self-check", "Service and Directory find themselves consistent."},
};

inline const RuleText &rule_text(Rule rule) {
    for (const RuleText &text : kRules)
        if (text.rule == rule)
            return text;
    return kRules[0];
}

struct Violation {
    Rule rule;
    std::string what;
};
[[noreturn, gnu::format(printf, 2, 3)]] void violated(Rule rule, const char *format, ...);

}  // namespace maru::sim
