// The fields of what marud tells: one row per field, for the table, the list of values and the JSON.
//
// JSON keys are stable: scripts read them. A key ending in _bytes or _ms has that unit; ids are
// strings "0x...", as they are written in arguments; digests are 64 hexadecimal digits.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "libmaru/wire/messages.h"

namespace maru::maructl {

struct Cell {
    enum class Form { Id, Text, Bytes, Milliseconds, Count, Signed, Flag };
    Form form;
    uint64_t number = 0;
    std::string text = {};
};

template <typename Row>
struct Column {
    const char *key;    // in JSON
    const char *title;  // for people; nullptr: in JSON only
    Cell (*get)(const Row &);
    Cell::Form form;
};

std::span<const Column<wire::SessionRow>> columns(const wire::SessionRow &);
std::span<const Column<wire::PoolRow>> columns(const wire::PoolRow &);
std::span<const Column<wire::NamespaceRow>> columns(const wire::NamespaceRow &);
std::span<const Column<wire::ObjectRow>> columns(const wire::ObjectRow &);
std::span<const Column<wire::LeaseRow>> columns(const wire::LeaseRow &);
std::span<const Column<wire::ExplainRow>> columns(const wire::ExplainRow &);
std::span<const Column<wire::StatusReply>> columns(const wire::StatusReply &);
std::span<const Column<wire::UsageReply>> columns(const wire::UsageReply &);

std::string id_text(wire::Id id);                     // "0x100000003"
std::string digest_text(const wire::Digest &digest);  // 64 hexadecimal digits
std::string key_text(const wire::Key &key);           // DIGEST/SHARD/PART

}  // namespace maru::maructl
