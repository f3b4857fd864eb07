// A quick look at what this host and this marud can do. Not a benchmark to quote: one client, one
// thread, whatever else is running.
#include <algorithm>
#include <cstring>
#include <ostream>
#include <vector>

#include "daemon/maructl/json_writer.h"
#include "daemon/maructl/verb.h"
#include "libmaru/base/clock.h"
#include "libmaru/base/size_text.h"

namespace maru::maructl {

namespace {

constexpr uint32_t kWarmUp = 50;
constexpr size_t kCopyBytes = 64u << 20;
constexpr int kCopyRounds = 8;

double microseconds(int64_t ns) { return static_cast<double>(ns) / 1000; }

// Of sorted, non-empty times: the smallest that `share` of them do not exceed.
int64_t quantile(const std::vector<int64_t> &sorted, double share) {
    const auto rank = static_cast<size_t>(share * static_cast<double>(sorted.size()));
    return sorted[std::min(rank, sorted.size() - 1)];
}

// Usage is the smallest question that marud answers to a client without a session.
Result<std::vector<int64_t>> measure_round_trips(Client &client, uint32_t count) {
    std::vector<int64_t> times;
    times.reserve(count);
    for (uint32_t i = 0; i < kWarmUp + count; ++i) {
        const int64_t start = monotonic_ns();
        const auto reply = client.call_for<wire::UsageReply>(wire::UsageRequest{});
        if (!reply)
            return reply.error();
        if (i >= kWarmUp)
            times.push_back(monotonic_ns() - start);
    }
    std::sort(times.begin(), times.end());
    return times;
}

// The best of several rounds, in GB/s of bytes copied.
double measure_copy() {
    std::vector<char> from(kCopyBytes, 1), to(kCopyBytes, 2);
    int64_t best = INT64_MAX;
    for (int round = 0; round < kCopyRounds; ++round) {
        from[static_cast<size_t>(round)] = static_cast<char>(round);
        const int64_t start = monotonic_ns();
        std::memcpy(to.data(), from.data(), kCopyBytes);
        // Without this the copy could be left out: nobody reads the target.
        __asm__ volatile("" : : "r"(to.data()) : "memory");
        best = std::min(best, std::max<int64_t>(monotonic_ns() - start, 1));
    }
    return static_cast<double>(kCopyBytes) / static_cast<double>(best);
}

}  // namespace

int verb_bench(Context &context) {
    int exit = kOk;
    auto client = context.connect(&exit);
    if (!client)
        return exit;
    const auto times = measure_round_trips(*client, context.options.count);
    if (!times)
        return context.fail(times.error());
    const double p50 = microseconds(quantile(*times, 0.50));
    const double p99 = microseconds(quantile(*times, 0.99));
    const double copy = measure_copy();
    if (context.options.json) {
        JsonWriter json(context.out);
        json.begin_object();
        json.key("round_trips");
        json.number(times->size());
        json.key("round_trip_p50_us");
        json.real(p50);
        json.key("round_trip_p99_us");
        json.real(p99);
        json.key("memcpy_gb_per_s");
        json.real(copy);
        json.end_object();
    } else {
        char line[160];
        std::snprintf(line, sizeof line,
                      "round trip to marud   p50 %.1f us, p99 %.1f us  (%zu usage requests)\n", p50,
                      p99, times->size());
        context.out << line;
        std::snprintf(line, sizeof line,
                      "memcpy in maructl     %.1f GB/s  (%s, one thread, best of %d; marud has no "
                      "part in it)\n",
                      copy, format_size(kCopyBytes).c_str(), kCopyRounds);
        context.out << line;
    }
    return kOk;
}

}  // namespace maru::maructl
