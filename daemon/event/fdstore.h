// FdStore: segments and pidfds parked with the service manager, so that they outlive marud.
//
// A descriptor is stored by name before the reply that promises it, and removed by name when it is
// dropped. FDPOLL=0: the manager must not watch them, or it would drop a pidfd when its process
// ends. What comes back at the start is only a claim: callers compare it with the session's record.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "daemon/event/notify.h"
#include "daemon/protocol/service.h"

namespace maru {

std::string segment_fd_name(SegmentRef segment);
std::string pidfd_name(uint32_t pid, uint64_t start_time);
std::optional<SegmentRef> parse_segment_fd_name(std::string_view name);

// What the manager passed at the start ($LISTEN_FDS for our pid; the variables are unset).
struct PassedDescriptors {
    std::vector<UniqueFd> listeners;         // listening SOCK_SEQPACKET Unix sockets
    std::map<std::string, UniqueFd> stored;  // by name
    std::vector<std::string> refused;        // names of what was neither; closed by collect
};
// `take`: how many descriptors from 3 on, with `names`; split from the environment for tests.
PassedDescriptors sort_passed_descriptors(std::vector<UniqueFd> fds,
                                          const std::vector<std::string> &names);
PassedDescriptors take_passed_descriptors();

class FdStore {
  public:
    // `enabled`: the manager keeps descriptors for us (fdstore_available()).
    FdStore(Notifier &notifier, bool enabled) : notifier_(notifier), enabled_(enabled) {}
    bool enabled() const { return enabled_; }
    void store(const std::string &name, int fd);
    void remove(const std::string &name);
    // What an earlier life left there.
    void found(const std::string &name) { names_.insert(name); }
    size_t entries() const { return names_.size(); }

  private:
    Notifier &notifier_;  // owned by Daemon, outlives this
    bool enabled_;
    std::unordered_set<std::string> names_;
};

// $FDSTORE (systemd 254 and newer) says so; an older manager does not tell, and we are asked to
// believe it when it started this very process.
bool fdstore_available(const Notifier &notifier);

}  // namespace maru
