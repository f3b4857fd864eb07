// What each request needs before its handler sees it.
//
// One rule per request type, found at compile time: a new request without a rule does not compile,
// so a check cannot be forgotten. `names` is what the request can name of somebody else (of several
// kinds, the one with the narrower owner); the ownership test has an entry for each that names
// something.
#pragma once

#include <cstdint>

#include "libmaru/wire/messages.h"

namespace maru {

enum class Need : uint8_t {
    Fresh,      // the connection has said nothing yet
    Proof,      // hello is done, and its nonce unanswered
    Hello,      // hello (and its proof) done; with or without a session
    NoSession,  // as Hello; what it does with a session that is there already it decides itself
    Session,    // a session that is whole
    Joining,    // a session, whole or between Attach and AttachDone
    Attaching,  // only between Attach and AttachDone
};

enum class Names : uint8_t { Nothing, Session, Namespace, Pool, Replica };

struct RequestRule {
    Need need;
    bool worker_only;  // a scheduler is refused: it is metadata-only
    Names names;
    const char *name;
};

template <typename Request>
struct RuleOf;  // a request without a rule is refused here, by the compiler

#define MARU_RULE(Type, ...)                                       \
    template <>                                                    \
    struct RuleOf<wire::Type##Request> {                           \
        static constexpr RequestRule kRule = {__VA_ARGS__, #Type}; \
    }

MARU_RULE(Hello, Need::Fresh, false, Names::Nothing);
MARU_RULE(HelloProof, Need::Proof, false, Names::Nothing);
MARU_RULE(OpenSession, Need::NoSession, false, Names::Session);
MARU_RULE(Attach, Need::NoSession, false, Names::Session);
MARU_RULE(AttachPool, Need::Attaching, true, Names::Pool);
MARU_RULE(Republish, Need::Attaching, true, Names::Pool);
MARU_RULE(AttachLeases, Need::Attaching, true, Names::Replica);
MARU_RULE(AttachDone, Need::Attaching, false, Names::Nothing);
MARU_RULE(Describe, Need::Joining, true, Names::Namespace);
MARU_RULE(Heartbeat, Need::Joining, false, Names::Pool);
MARU_RULE(RegisterNamespace, Need::Joining, false, Names::Nothing);
MARU_RULE(OpenPool, Need::Session, true, Names::Nothing);
MARU_RULE(GrantSegment, Need::Session, true, Names::Pool);
MARU_RULE(SegmentMapped, Need::Session, true, Names::Pool);
MARU_RULE(ClosePool, Need::Session, true, Names::Pool);
MARU_RULE(CloseSession, Need::Session, false, Names::Nothing);
MARU_RULE(Commit, Need::Session, true, Names::Pool);
MARU_RULE(Resolve, Need::Joining, true, Names::Nothing);
MARU_RULE(Probe, Need::Session, false, Names::Namespace);
MARU_RULE(Acquire, Need::Session, true, Names::Namespace);
MARU_RULE(Release, Need::Session, true, Names::Replica);
MARU_RULE(Retire, Need::Session, true, Names::Replica);
MARU_RULE(ReclaimAck, Need::Session, true, Names::Replica);
MARU_RULE(Usage, Need::Hello, false, Names::Pool);
MARU_RULE(Status, Need::Hello, false, Names::Nothing);
MARU_RULE(List, Need::Hello, false, Names::Namespace);
MARU_RULE(Explain, Need::Hello, false, Names::Namespace);
MARU_RULE(AdminRetire, Need::Hello, false, Names::Replica);
MARU_RULE(Drain, Need::Hello, false, Names::Nothing);
MARU_RULE(Reload, Need::Hello, false, Names::Nothing);
MARU_RULE(MapSegment, Need::Session, true, Names::Replica);
MARU_RULE(RetireSegment, Need::Hello, false, Names::Pool);
MARU_RULE(EngineWorker, Need::Session, false, Names::Nothing);

#undef MARU_RULE

}  // namespace maru
