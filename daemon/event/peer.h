// Who is at the other end of an accepted connection: what the kernel says, nothing the peer says.
//
// The binding is to the process that called connect(). On Linux 6.5 and newer its pidfd comes with
// the socket (SO_PEERPIDFD). Older kernels give only a number, which may already name another
// process: there the first packet's SCM_CREDENTIALS and a nonce prove it (see client_socket.h).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libmaru/base/result.h"
#include "libmaru/base/unique_fd.h"

namespace maru {

struct PeerCredentials {
    uint32_t uid = UINT32_MAX;
    uint32_t gid = UINT32_MAX;
    uint32_t pid = 0;           // 0: in a pid namespace that we cannot see
    std::vector<gid_t> groups;  // supplementary, as of connect()
};

struct ProcessFacts {
    uint64_t start_time = 0;  // clock ticks after boot; 0 when not visible
    std::string command = "-";
};

// EACCES: the overflow uid, which stands for "somebody we cannot name".
Result<PeerCredentials> peer_credentials(int socket);

// ENOPROTOOPT: the kernel is older than 6.5. ESRCH: the peer has ended already.
Result<UniqueFd> peer_pidfd(int socket);
Result<UniqueFd> open_pidfd(uint32_t pid);
// The process that had this number and was started then; an empty descriptor: it has ended. An error
// means that nobody could tell (no descriptors, no memory), never that it has ended.
Result<UniqueFd> find_process(uint32_t pid, uint64_t start_time);
bool process_ended(int pidfd);

// From /proc/PID/stat and comm, which take none of the target's locks that it could hold for ever
// (its command line would). Both files are of the process named by `pidfd`, or nothing is returned.
ProcessFacts read_process(uint32_t pid, int pidfd);
std::optional<uint64_t> parse_start_time(const std::string &stat);  // of /proc/PID/stat

struct AdminRule {
    uint32_t own_uid = UINT32_MAX;
    std::optional<uint32_t> group;  // of daemon.admin_group
};
bool is_admin(const PeerCredentials &peer, const AdminRule &rule);

// Name service look-ups may block: at start and reload only. ENOENT: no such group.
Result<std::optional<uint32_t>> find_group(const std::string &name);

}  // namespace maru
