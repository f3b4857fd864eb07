// Draws the settings of an episode, and turns them into marud's configuration.
#include "tests/sim/settings.h"

namespace maru::sim {

Settings Settings::draw(Random &random) {
    Settings s;
    s.workers = random.between(1, 4);
    s.schedulers = random.between(0, 2);
    s.liars = random.between(0, 2);
    s.admins = random.below(2);
    s.uids = random.between(1, 2);
    s.texts = random.between(1, 3);
    s.keys = random.between(3, 16);
    s.shards = random.one_in(4) ? 2 : 1;
    s.parts = random.one_in(6) ? 2 : 1;
    s.page_bytes = random.one_in(4) ? 8192 : 4096;
    s.segment_pages = random.between(4, 16);
    s.object_pages = random.between(1, 3);
    s.pool_pages = random.between(s.segment_pages, 3 * s.segment_pages);
    s.fdstore = !random.one_in(3);
    s.nonce = random.one_in(4);
    s.graceful_end = random.coin();
    s.host_pools = random.between(1, 2 * s.workers);
    s.uid_pools = random.between(1, 4);
    s.max_leases = random.one_in(3) ? random.between(4, 8) : 64;
    s.max_ledger = random.one_in(3) ? random.between(3, 12) : 256;
    s.mean_step_us = random.between(100, 800);
    const auto rate = [&](uint32_t common) {
        const uint32_t r = random.below(4);
        return r == 0 ? 0 : r == 1 ? common * 8 : r == 2 ? common : common / 3;
    };
    s.cut = rate(150);
    s.worker_kill = rate(1200);
    s.daemon_kill = rate(1500);
    s.stop = rate(900);
    s.stall = rate(4000);
    s.fork = rate(800);
    s.leap = rate(1500);
    s.length = random.between(2000, 12000);
    // Last, so that what was drawn before is what it always was.
    s.sharers = random.one_in(3) ? 0 : random.between(1, 5);
    s.shared_texts = random.between(1, 2);
    return s;
}

ServiceConfig Settings::service(uint32_t epoch) const {
    ServiceConfig config;
    config.epoch = epoch;
    config.version = "sim";
    config.max_leases_per_session = max_leases;
    config.max_ledger_items = max_ledger;
    const uint64_t pool = static_cast<uint64_t>(pool_pages) * page_bytes;
    config.host_cpu_bytes = host_pools * pool;
    config.uid_cpu_bytes = uid_pools * pool;
    config.worker_cpu_bytes = 2 * pool;
    config.segment_bytes = static_cast<uint64_t>(segment_pages) * page_bytes;
    config.host_segment_bytes = config.segment_bytes;
    config.session_timeout = 500'000'000;
    config.heartbeat_ms = 100;
    config.fdstore = fdstore;
    config.fdstore_name = fdstore ? "systemd" : "none";
    return config;
}

}  // namespace maru::sim
