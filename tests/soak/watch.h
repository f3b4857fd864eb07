// What marud uses while the actors are at it, and whether that is flat.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/integration/marud_fixture.h"

namespace maru::soak {

class Watch {
  public:
    Watch(test::Marud &marud, int64_t start_ns);
    void sample(int64_t now_ns);
    // "" or what was not flat, or which ping came late. `check_memory`: false under sanitizers, which
    // keep freed memory.
    std::string verdict(unsigned watchdog_ms, bool check_memory) const;
    std::string summary() const;

  private:
    struct Sample {
        uint64_t rss_kib = 0;
        size_t fds = 0;
    };
    test::Marud &marud_;
    std::vector<Sample> samples_;
    int64_t last_ping_ns_ = 0;
    int64_t longest_gap_ns_ = 0;
    uint64_t pings_ = 0;
};

}  // namespace maru::soak
