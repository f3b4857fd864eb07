// The ring of trace lines and their hash.
#include "tests/sim/trace.h"

#include <cstdarg>
#include <cstdio>

namespace maru::sim {

void Trace::add(const char *format, ...) {
    Line &line = lines_[count_++ % kKept];
    line.step = step_;
    line.now_ns = now_ns_;
    va_list args;
    va_start(args, format);
    vsnprintf(line.text.data(), line.text.size(), format, args);
    va_end(args);
    hash_ = (hash_ ^ step_ ^ static_cast<uint64_t>(now_ns_)) * 0x100000001b3;
    for (const char *c = line.text.data(); *c; ++c)
        hash_ = (hash_ ^ static_cast<unsigned char>(*c)) * 0x100000001b3;
    if (echo_)
        fprintf(stderr, "%8llu %10.3f ms  %s\n", static_cast<unsigned long long>(line.step),
                static_cast<double>(line.now_ns) / 1e6, line.text.data());
}

std::vector<std::string> Trace::last() const {
    std::vector<std::string> out;
    const uint64_t first = count_ > kKept ? count_ - kKept : 0;
    for (uint64_t i = first; i < count_; ++i) {
        const Line &line = lines_[i % kKept];
        char head[64];
        snprintf(head, sizeof head, "%8llu %10.3f ms  ", static_cast<unsigned long long>(line.step),
                 static_cast<double>(line.now_ns) / 1e6);
        out.push_back(std::string(head) + line.text.data());
    }
    return out;
}

}  // namespace maru::sim
