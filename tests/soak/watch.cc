#include "tests/soak/watch.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

namespace maru::soak {
namespace {

uint64_t rss_kib(pid_t pid) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(in, line);)
        if (line.rfind("VmRSS:", 0) == 0)
            return std::stoull(line.substr(6));
    return 0;
}

template <typename T, typename Sample>
std::vector<T> column(const std::vector<Sample> &samples, size_t from, size_t to,
                      T Sample::*member) {
    std::vector<T> values;
    for (size_t i = from; i < to; ++i)
        values.push_back(samples[i].*member);
    std::sort(values.begin(), values.end());
    return values;
}

}  // namespace

Watch::Watch(test::Marud &marud, int64_t start_ns) : marud_(marud), last_ping_ns_(start_ns) {
    marud_.notifications();
}

void Watch::sample(int64_t now_ns) {
    samples_.push_back({rss_kib(marud_.pid()), marud_.open_fds()});
    // Looked at once a sample, so a gap is known to one sampling interval.
    for (const std::string &message : marud_.notifications()) {
        if (message.find("WATCHDOG=1") != std::string::npos) {
            ++pings_;
            last_ping_ns_ = now_ns;
        }
    }
    longest_gap_ns_ = std::max(longest_gap_ns_, now_ns - last_ping_ns_);
}

std::string Watch::verdict(unsigned watchdog_ms, bool check_memory) const {
    if (samples_.size() < 9)
        return "too few samples to judge";
    if (pings_ == 0 || longest_gap_ns_ > int64_t{watchdog_ms} * 1'000'000)
        return "a watchdog ping was missed: longest gap " +
               std::to_string(longest_gap_ns_ / 1'000'000) + " ms of " +
               std::to_string(watchdog_ms) + " ms allowed";
    // The first third warms up: it is left out. Then the second is compared with the last.
    size_t third = samples_.size() / 3;
    auto fds_before = column(samples_, third, 2 * third, &Sample::fds);
    auto fds_after = column(samples_, 2 * third, samples_.size(), &Sample::fds);
    size_t before = fds_before[fds_before.size() / 2], after = fds_after[fds_after.size() / 2];
    if (after > before + 24 + before / 10)
        return "descriptors grow: median " + std::to_string(before) + ", then " +
               std::to_string(after);
    auto rss_before = column(samples_, third, 2 * third, &Sample::rss_kib);
    auto rss_after = column(samples_, 2 * third, samples_.size(), &Sample::rss_kib);
    uint64_t earlier = rss_before[rss_before.size() / 2], later = rss_after[rss_after.size() / 2];
    if (check_memory && later > earlier + earlier / 20 + 512)
        return "memory grows: median " + std::to_string(earlier) + " KiB, then " +
               std::to_string(later) + " KiB";
    return {};
}

std::string Watch::summary() const {
    if (samples_.empty())
        return "no samples";
    auto fds = column(samples_, 0, samples_.size(), &Sample::fds);
    auto rss = column(samples_, 0, samples_.size(), &Sample::rss_kib);
    char text[256];
    std::snprintf(
        text, sizeof text,
        "marud: RSS min %llu, median %llu, max %llu KiB; descriptors min %zu, median %zu, "
        "max %zu; %llu watchdog pings, longest gap %lld ms",
        static_cast<unsigned long long>(rss.front()),
        static_cast<unsigned long long>(rss[rss.size() / 2]),
        static_cast<unsigned long long>(rss.back()), fds.front(), fds[fds.size() / 2], fds.back(),
        static_cast<unsigned long long>(pings_),
        static_cast<long long>(longest_gap_ns_ / 1'000'000));
    return text;
}

}  // namespace maru::soak
