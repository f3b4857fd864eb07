// What one episode of a run looks like. Every episode draws its own, so that rare combinations
// (no store, tiny ledger, full host) get whole episodes to themselves.
#pragma once

#include <cstdint>

#include "daemon/protocol/service.h"
#include "tests/sim/random.h"

namespace maru::sim {

struct Settings {
    uint32_t workers = 3, schedulers = 1, liars = 1, admins = 1;
    uint32_t uids = 2;
    uint32_t sharers = 0, shared_texts = 2;
    uint32_t texts = 3, keys = 12, shards = 1, parts = 1;
    uint32_t page_bytes = 4096, segment_pages = 16, pool_pages = 40, object_pages = 2;
    bool fdstore = true;
    bool nonce = false;  // connections must prove their pid
    bool graceful_end = false;
    uint32_t host_pools = 3;  // room for that many pools on the host
    uint32_t uid_pools = 2;
    uint32_t max_leases = 64, max_ledger = 256;
    uint32_t mean_step_us = 400;
    // One in so many steps; 0 = never.
    uint32_t cut = 0, worker_kill = 0, daemon_kill = 0, stop = 0, stall = 0, fork = 0, leap = 0;
    uint32_t length = 10000;  // steps before the end phase

    static Settings draw(Random &random);
    ServiceConfig service(uint32_t epoch) const;
};

}  // namespace maru::sim
