// What a stranger tries with each request of the schema, and what it must get.
#pragma once

#include <map>
#include <string>

#include "tests/integration/hostile/hostile_test.h"

namespace maru::test {

// What the stranger knows: everything that can be known, right to the last bit.
struct Loot {
    wire::Token token{};
    uint32_t epoch = 0;
    wire::Id session = 0, ns = 0, pool = 0;
    wire::ReplicaName lease;
    uint64_t capacity = 0, segment_bytes = 0;
    int segment = -1;  // a descriptor of the owner's memory, inherited
    bool same_uid = false;
};

// Of one item of a batch.
wire::Status item(WireClient &client, const wire::RequestBody &body);
// Throws unless they are the same.
void is(wire::Status got, wire::Status wanted, const std::string &what);

enum class Scope { None, Session, Namespace, Pool, Replica, Uid, Admin };

// `intruder` has a session, a namespace of the same text and a pool of its own.
using Try = void (*)(const Loot &, Party &intruder);

struct Entry {
    Scope scope;
    bool needs_session;  // without one it is PROTOCOL, whoever asks
    Try attempt;         // nullptr: it can name nothing of anybody
};

// By the name that the schema has for it.
const std::map<std::string, Entry> &strangers_table();

}  // namespace maru::test
