#include "daemon/event/fdstore.h"

#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>

namespace maru {
namespace {

template <typename T>
bool parse_whole(std::string_view text, int base, T *ret) {
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *ret, base);
    return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string segment_fd_name(SegmentRef segment) {
    char name[64];
    std::snprintf(name, sizeof name, "seg-%016llx-%u",
                  static_cast<unsigned long long>(segment.pool), segment.segment);
    return name;
}

std::string pidfd_name(uint32_t pid, uint64_t start_time) {
    return "pid-" + std::to_string(pid) + "-" + std::to_string(start_time);
}

std::optional<SegmentRef> parse_segment_fd_name(std::string_view name) {
    SegmentRef ref;
    if (name.size() < 22 || name.substr(0, 4) != "seg-" || name[20] != '-' ||
        !parse_whole(name.substr(4, 16), 16, &ref.pool) ||
        !parse_whole(name.substr(21), 10, &ref.segment) || segment_fd_name(ref) != name)
        return std::nullopt;
    return ref;
}

PassedDescriptors sort_passed_descriptors(std::vector<UniqueFd> fds,
                                          const std::vector<std::string> &names) {
    PassedDescriptors out;
    for (size_t i = 0; i < fds.size(); ++i) {
        std::string name = i < names.size() ? names[i] : "";
        if (sd_is_socket(fds[i].get(), AF_UNIX, SOCK_SEQPACKET, 1) > 0)
            out.listeners.push_back(std::move(fds[i]));
        else if ((parse_segment_fd_name(name) || name.rfind("pid-", 0) == 0) &&
                 !out.stored.contains(name))
            out.stored.emplace(name, std::move(fds[i]));
        else
            out.refused.push_back(name);
    }
    return out;
}

PassedDescriptors take_passed_descriptors() {
    char **raw_names = nullptr;
    // Checks LISTEN_PID, sets CLOEXEC and unsets the variables: no child inherits them.
    int count = sd_listen_fds_with_names(1, &raw_names);
    std::vector<UniqueFd> fds;
    std::vector<std::string> names;
    for (int i = 0; i < count; ++i) {
        fds.emplace_back(SD_LISTEN_FDS_START + i);
        names.emplace_back(raw_names && raw_names[i] ? raw_names[i] : "");
    }
    for (char **name = raw_names; name && *name; ++name)
        std::free(*name);
    std::free(raw_names);
    return sort_passed_descriptors(std::move(fds), names);
}

void FdStore::store(const std::string &name, int fd) {
    if (!enabled_)
        return;
    names_.insert(name);
    notifier_.send("FDSTORE=1\nFDNAME=" + name + "\nFDPOLL=0", {&fd, 1});
}

void FdStore::remove(const std::string &name) {
    if (!enabled_)
        return;
    names_.erase(name);
    notifier_.send("FDSTOREREMOVE=1\nFDNAME=" + name);
}

bool fdstore_available(const Notifier &notifier) {
    if (!notifier.connected())
        return false;
    if (const char *slots = ::getenv("FDSTORE"))
        return std::atoi(slots) > 0;
    const char *pid = ::getenv("SYSTEMD_EXEC_PID");
    return pid && std::to_string(::getpid()) == pid;
}

}  // namespace maru
