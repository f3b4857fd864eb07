// Host: what a check may ask of this machine: its files, and tries of what the kernel lets us do.
//
// A root is put before every path, and every try is a function, so that a test can be any machine.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "daemon/maructl/doctor/io_uring_probe.h"

namespace maru::maructl {

// Each really does the thing, once, on something of its own: 0, or the errno.
struct Probes {
    std::function<int()> seal_future_write;
    std::function<int()> memfd_noexec_seal;
    std::function<int()> pidfd;
    std::function<int()> peer_pidfd;
    std::function<int()> pass_rights;
    std::function<int()> populate_write;
    std::function<int()> collapse;
    std::function<int()> bind_memory;
    std::function<IoUringProbe()> io_uring;
    std::function<int(const std::string &path, int mode)> access;  // as the effective user
};
Probes system_probes();

class Host {
  public:
    explicit Host(Probes tries = system_probes(), std::string root = "")
        : probes(std::move(tries)), root_(std::move(root)) {}

    const Probes probes;

    const std::string &root() const { return root_; }
    // Without the newline at its end.
    std::optional<std::string> text(const std::string &path) const;
    std::optional<uint64_t> number(const std::string &path) const;
    std::vector<std::string> list(const std::string &folder) const;  // sorted; empty: none
    std::optional<struct stat> status(const std::string &path) const;
    // Where a symbolic link points to: its last part, or "".
    std::string link_name(const std::string &path) const;
    int access(const std::string &path, int mode) const {
        return probes.access(root_ + path, mode);
    }

  private:
    std::string root_;
};

}  // namespace maru::maructl
