#include "daemon/event/peer.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

// Linux 6.5; headers of Debian 12 do not name it.
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace maru {
namespace {

// At most a few hundred bytes: stat is one line, comm is 16.
std::string read_small_file(const std::string &path) {
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    char text[1024];
    ssize_t got = fd ? ::read(fd.get(), text, sizeof text) : -1;
    return std::string(text, got > 0 ? static_cast<size_t>(got) : 0);
}

uint32_t overflow_uid() {
    static const uint32_t uid = [] {
        std::string text = read_small_file("/proc/sys/kernel/overflowuid");
        uint32_t value = 65534;
        std::from_chars(text.data(), text.data() + text.size(), value);
        return value;
    }();
    return uid;
}

}  // namespace

Result<PeerCredentials> peer_credentials(int socket) {
    ucred credentials = {};
    socklen_t length = sizeof credentials;
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) < 0)
        return Error{errno, "SO_PEERCRED of a client"};
    if (credentials.uid == overflow_uid() || credentials.uid == UINT32_MAX)
        return Error{EACCES, "client with the overflow uid " + std::to_string(credentials.uid) +
                                 ": its user does not exist in marud's user namespace"};
    PeerCredentials peer;
    peer.uid = credentials.uid;
    peer.gid = credentials.gid;
    peer.pid = static_cast<uint32_t>(std::max<pid_t>(credentials.pid, 0));
    peer.groups.resize(64);
    for (int attempt = 0; attempt < 2; ++attempt) {
        length = static_cast<socklen_t>(peer.groups.size() * sizeof(gid_t));
        if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, peer.groups.data(), &length) == 0) {
            peer.groups.resize(length / sizeof(gid_t));
            return peer;
        }
        if (errno != ERANGE)
            break;
        peer.groups.resize(length / sizeof(gid_t));  // the kernel says how many there are
    }
    peer.groups.clear();
    return peer;
}

Result<UniqueFd> peer_pidfd(int socket) {
    int fd = -1;
    socklen_t length = sizeof fd;
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &length) < 0)
        return Error{errno, "SO_PEERPIDFD of a client"};
    return UniqueFd(fd);
}

Result<UniqueFd> open_pidfd(uint32_t pid) {
    if (pid == 0)
        return Error{ESRCH, "pidfd_open 0: the process is not visible from here"};
    UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));
    if (!fd)
        return Error{errno, "pidfd_open " + std::to_string(pid)};
    return fd;
}

Result<UniqueFd> find_process(uint32_t pid, uint64_t start_time) {
    auto pidfd = open_pidfd(pid);
    if (!pidfd && pidfd.error().code != ESRCH && pidfd.error().code != EINVAL)
        return pidfd;  // EINVAL: the number is a thread's now
    if (!pidfd || start_time == 0)
        return UniqueFd();
    uint64_t found = read_process(pid, pidfd->get()).start_time;
    if (found == 0 && !process_ended(pidfd->get()))
        return Error{EAGAIN, "cannot read when process " + std::to_string(pid) + " was started"};
    return found == start_time ? std::move(*pidfd) : UniqueFd();
}

bool process_ended(int pidfd) {
    pollfd ready = {pidfd, POLLIN, 0};
    return ::poll(&ready, 1, 0) > 0;
}

std::optional<uint64_t> parse_start_time(const std::string &stat) {
    // The command stands in parentheses and may contain any of them: the last one ends it.
    size_t at = stat.rfind(')');
    if (at == std::string::npos)
        return std::nullopt;
    // Field 22, counted from the state, which is field 3.
    for (int field = 2; field < 22; ++field) {
        at = stat.find(' ', at);
        if (at == std::string::npos)
            return std::nullopt;
        ++at;
    }
    uint64_t value = 0;
    auto [end, error] = std::from_chars(stat.data() + at, stat.data() + stat.size(), value);
    if (error != std::errc() || end == stat.data() + at)
        return std::nullopt;
    return value;
}

ProcessFacts read_process(uint32_t pid, int pidfd) {
    if (pid == 0)
        return {};
    std::string directory = "/proc/" + std::to_string(pid);
    std::string stat = read_small_file(directory + "/stat");
    std::string command = read_small_file(directory + "/comm");
    // While the pidfd's process lives the number is its own, so what was read is about it.
    if (process_ended(pidfd))
        return {};
    ProcessFacts facts;
    facts.start_time = parse_start_time(stat).value_or(0);
    while (!command.empty() && command.back() == '\n')
        command.pop_back();
    if (!command.empty())
        facts.command = command;
    return facts;
}

bool is_admin(const PeerCredentials &peer, const AdminRule &rule) {
    if (peer.uid == 0 || peer.uid == rule.own_uid)
        return true;
    return rule.group &&
           (peer.gid == *rule.group ||
            std::find(peer.groups.begin(), peer.groups.end(), *rule.group) != peer.groups.end());
}

Result<std::optional<uint32_t>> find_group(const std::string &name) {
    if (name.empty())
        return std::optional<uint32_t>();
    errno = 0;
    const group *found = ::getgrnam(name.c_str());
    if (!found)
        return Error{ENOENT, "daemon.admin_group: there is no group '" + name + "'"};
    return std::optional<uint32_t>(found->gr_gid);
}

}  // namespace maru
