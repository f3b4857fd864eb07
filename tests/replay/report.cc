#include "tests/replay/report.h"

#include <algorithm>
#include <cstdio>

#include "libmaru/base/size_text.h"

namespace maru::replay {
namespace {

double ratio(uint64_t part, uint64_t whole) {
    return whole ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

std::string line(const char *format, auto... values) {
    char text[256];
    std::snprintf(text, sizeof text, format, values...);
    return text;
}

std::string latency_line(const char *name, const Percentiles &p) {
    return line("  %-9s p50 %9.1f us   p95 %9.1f us   p99 %9.1f us\n", name, p.p50, p.p95, p.p99);
}

std::string latency_json(const char *name, const Percentiles &p) {
    return line("\"%s\": {\"p50\": %.2f, \"p95\": %.2f, \"p99\": %.2f}", name, p.p50, p.p95, p.p99);
}

}  // namespace

Percentiles percentiles(std::vector<uint64_t> ns) {
    Percentiles p;
    if (ns.empty())
        return p;
    std::sort(ns.begin(), ns.end());
    auto at = [&ns](double q) {
        size_t index = static_cast<size_t>(q * static_cast<double>(ns.size() - 1) + 0.5);
        return static_cast<double>(ns[index]) / 1000.0;
    };
    return {at(0.50), at(0.95), at(0.99)};
}

std::string report_text(const Report &r, const Options &o) {
    std::string t;
    t += line("requests   %llu in %.1f s, %u workers, pools %s in all, blocks of %s\n",
              static_cast<unsigned long long>(r.requests), r.seconds, o.workers,
              format_size(o.pool_bytes).c_str(), format_size(o.block_bytes()).c_str());
    t += line(
        "hit rate   %5.1f %% of requests (ideal %5.1f %%)   %5.1f %% of blocks (ideal %5.1f %%)\n",
        100 * ratio(r.hit_requests, r.requests),
        100 * ratio(r.ideal.hit_requests, r.ideal.requests), 100 * ratio(r.hit_blocks, r.blocks),
        100 * ratio(r.ideal.hit_blocks, r.ideal.blocks));
    t += line("blocks     %llu stored, %llu retired, %llu not admitted, %llu settled later\n",
              static_cast<unsigned long long>(r.stored_blocks),
              static_cast<unsigned long long>(r.retired_blocks),
              static_cast<unsigned long long>(r.skipped_blocks),
              static_cast<unsigned long long>(r.unknown_blocks));
    t += line("verified   %s, every byte; %llu words wrong\n",
              format_size(r.bytes_verified).c_str(), static_cast<unsigned long long>(r.mismatches));
    t += line("bandwidth  store %.2f GB/s, load %.2f GB/s (per worker, while it stores or loads)\n",
              ratio(r.store_bytes, r.store_ns), ratio(r.load_bytes, r.load_ns));
    t += "latency    probe: one engine; acquire, load, store: all blocks of one request\n";
    t += latency_line("probe", percentiles(r.probe_ns));
    t += latency_line("acquire", percentiles(r.acquire_ns));
    t += latency_line("store", percentiles(r.store_latency_ns));
    t += latency_line("load", percentiles(r.load_latency_ns));
    if (o.kill)
        t += line("killed     %llu workers, %llu times marud; %llu requests were given out again\n",
                  static_cast<unsigned long long>(r.worker_kills),
                  static_cast<unsigned long long>(r.marud_kills),
                  static_cast<unsigned long long>(r.repeated_requests));
    if (r.errors)
        t += line("errors     %llu calls failed; the last with errno %d\n",
                  static_cast<unsigned long long>(r.errors), -r.last_error);
    return t;
}

std::string report_json(const Report &r, const Options &o) {
    auto u = [](uint64_t value) { return std::to_string(value); };
    std::string t = "{\"requests\": " + u(r.requests) +
                    ", \"bytes_verified\": " + u(r.bytes_verified) +
                    ", \"mismatches\": " + u(r.mismatches);
    t += line(", \"hit_rate_request\": %.6f", ratio(r.hit_requests, r.requests));
    t += line(", \"hit_rate_block\": %.6f", ratio(r.hit_blocks, r.blocks));
    t += line(", \"ideal_hit_rate_request\": %.6f", ratio(r.ideal.hit_requests, r.ideal.requests));
    t += line(", \"ideal_hit_rate_block\": %.6f", ratio(r.ideal.hit_blocks, r.ideal.blocks));
    t += line(", \"store_gbps\": %.4f, \"load_gbps\": %.4f", ratio(r.store_bytes, r.store_ns),
              ratio(r.load_bytes, r.load_ns));
    t += ", \"latency_us\": {" + latency_json("probe", percentiles(r.probe_ns)) + ", " +
         latency_json("acquire", percentiles(r.acquire_ns)) + ", " +
         latency_json("store", percentiles(r.store_latency_ns)) + ", " +
         latency_json("load", percentiles(r.load_latency_ns)) + "}";
    t += ", \"blocks\": " + u(r.blocks) + ", \"blocks_stored\": " + u(r.stored_blocks) +
         ", \"blocks_retired\": " + u(r.retired_blocks) +
         ", \"blocks_skipped\": " + u(r.skipped_blocks) +
         ", \"block_bytes\": " + u(o.block_bytes()) + ", \"pool_bytes\": " + u(o.pool_bytes) +
         ", \"workers\": " + u(o.workers) + ", \"worker_kills\": " + u(r.worker_kills) +
         ", \"marud_kills\": " + u(r.marud_kills) + ", \"errors\": " + u(r.errors);
    t += line(", \"seconds\": %.3f, \"seed\": %llu}\n", r.seconds,
              static_cast<unsigned long long>(o.seed));
    return t;
}

}  // namespace maru::replay
