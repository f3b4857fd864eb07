// What a user would pick instead: redis-server over a Unix socket, where it is installed.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "libmaru/base/unique_fd.h"

namespace maru::bench {

class Redis {
  public:
    // Throws NotMeasurable without redis-server.
    Redis();
    ~Redis();
    Redis(const Redis &) = delete;
    Redis &operator=(const Redis &) = delete;

    // Keys are 32 bytes made of their number; values of `value_bytes`.
    void fill(size_t keys, size_t value_bytes);
    // One EXISTS of the keys [first, first + count), as text; and how many of them exist.
    std::string exists_command(size_t first, size_t count);
    int64_t exists(const std::string &command);
    // GET of one key, its value read into place.
    void get(size_t key, uint8_t *value, size_t value_bytes);

  private:
    void send(const std::string &command);
    std::string line();
    void append_key(std::string &command, size_t key);

    std::string folder_;
    pid_t child_ = -1;
    UniqueFd socket_;
    std::string input_;
};

}  // namespace maru::bench
