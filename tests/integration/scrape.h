// One scrape of a real marud, and its numbers.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "libmaru/base/unique_fd.h"
#include "tests/integration/marud_fixture.h"

namespace maru::test {

inline constexpr int kPatience = 30'000;  // of a loaded machine
inline constexpr char kCpu[] = "[cpu]\nhost_bytes = \"64M\"\nsegment_bytes = \"1M\"\n";
inline constexpr char kGet[] = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";

inline std::string metrics_socket(const Marud &marud) {
    return marud.directory() + "/metrics.sock";
}

// One connection, spoken to byte by byte.
class Http {
  public:
    explicit Http(const std::string &path);
    explicit Http(uint16_t port, int receive_buffer = 0);
    bool connected() const { return connected_; }
    int fd() const { return fd_.get(); }
    bool say(std::string_view bytes);
    // Everything until marud closes; false: it does not in time.
    bool hear(std::string *ret_text, int timeout_ms = kPatience);

  private:
    UniqueFd fd_;
    bool connected_ = false;
};

// The body of one scrape.
std::string scrape(const Marud &marud);

using Numbers = std::map<std::string, double>;  // by name and labels

// Reads strictly, and checks what every scrape must have.
Numbers numbers(const std::string &text);
Numbers now(const Marud &marud);
// Until `name` has `value`; what it has at last.
double settle(const Marud &marud, const std::string &name, double value);

}  // namespace maru::test
