// Two sessions of one uid that share memory.
#pragma once

#include "tests/daemon/protocol/harness.h"

namespace maru::test {

using wire::Status;

// A worker of uid 1000 with a pool of scope Host of two segments, and what it has stored.
struct SharedTest : testing::Test {
    SharedTest() : owner(world, world.peer(1000, 10)), reader(world, world.peer(1000, 11)) {
        world.config.host_segment_bytes = 64 << 10;
        world.restart(true);
        owner.open(1, "owner");
        ns = owner.name("model");
        owner.describe(ns);
        pool = open_pool(owner, 32);
        for (uint32_t key = 1; key <= 3; ++key)
            EXPECT_EQ(owner.commit_one(ns, key, Client::item(pool, key, key, key)).status,
                      Status::Ok);
        reader.open(2, "reader");
        reader_ns = reader.name("model");
        reader.describe(reader_ns);
    }
    // Of a pool of two segments of 16 pages.
    static AttachedDescriptor descriptor(wire::Id of, uint32_t segment) {
        return {true, false, 64 << 10, World::identity({of, segment})};
    }
    // As a worker that comes back: texts and schema, nothing else yet.
    void attach(Client &who, uint8_t secret, std::string_view engine, wire::Id *ret_ns) {
        EXPECT_FALSE(who.attach(secret, engine).as<wire::AttachReply>().same_life);
        *ret_ns = who.name("model");
        who.describe(*ret_ns);
    }
    static Answer attach_done(Client &who) { return who.call(wire::AttachDoneRequest{}); }
    static Answer republish(Client &who, std::vector<wire::RepublishItem> items) {
        return who.call(wire::RepublishRequest{items});
    }
    // The object of that number, as the fixture committed it.
    wire::RepublishItem told(wire::Id in, uint32_t key, uint32_t leases) const {
        return {Client::item(pool, key, key, key), in, leases, 0};
    }
    static wire::Id open_pool(Client &who, uint64_t pages, uint64_t key = 7) {
        wire::OpenPoolRequest request{
            .capacity_bytes = pages * 4096, .page_bytes = 4096, .request_key = key};
        request.scope = wire::Scope::Host;
        const auto made = who.call(request).as<wire::PoolReply>();
        who.call(wire::GrantSegmentRequest{made.pool, 0});
        who.call(wire::SegmentMappedRequest{made.pool, 0});
        return made.pool;
    }
    World world;
    Client owner, reader;
    wire::Id ns = 0, reader_ns = 0, pool = 0;
};

}  // namespace maru::test
