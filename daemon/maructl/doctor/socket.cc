// How a client of this user gets to marud: the socket, its permissions, who answers behind it, and
// where a marud of one's own could stand.
#include <grp.h>
#include <unistd.h>

#include <array>
#include <cstdio>

#include "daemon/maructl/doctor/subject.h"

namespace maru::maructl {

namespace {

std::string group_name(gid_t gid) {
    std::array<char, 4096> buffer;
    group entry, *found = nullptr;
    if (::getgrgid_r(gid, &entry, buffer.data(), buffer.size(), &found) == 0 && found)
        return found->gr_name;
    return std::to_string(gid);
}

std::string permissions(const struct stat &info) {
    char mode[8];
    std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(info.st_mode & 07777));
    return std::string("mode ") + mode + ", group " + group_name(info.st_gid);
}

// True: something is there.
bool check_one_socket(const Subject &subject, const std::string &path, Findings &findings) {
    const auto info = subject.host.status(path);
    if (!info)
        return false;
    const std::string what = "'" + path + "'";
    if (!S_ISSOCK(info->st_mode)) {
        findings.add("socket", Severity::Problem, what + " is no socket",
                     "Move it away and start marud again; it replaces nothing but a socket.",
                     "marud(8)");
    } else if (const int failed = subject.host.access(path, W_OK)) {
        findings.add(
            "socket", Severity::Problem,
            what + " (" + permissions(*info) + ") cannot be used by you: " + errno_text(failed),
            "Join its group, or set SocketMode= and SocketGroup= in marud.socket, or "
            "daemon.socket_mode for a marud that makes its socket itself.",
            "marud.toml(5), systemd.socket(5)");
    } else {
        findings.ok("socket", what + " may be used by you (" + permissions(*info) + ")",
                    "marud(8)");
    }
    return true;
}

std::string folder_of(const std::string &path) {
    const size_t slash = path.rfind('/');
    return slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

void check_socket(const Subject &subject, Findings &findings) {
    bool exists = false;
    for (const std::string &path : subject.sockets)
        exists = check_one_socket(subject, path, findings) || exists;
    const MarudFacts &marud = subject.marud;
    if (marud.connected && !marud.answered) {
        findings.add("marud", Severity::Problem,
                     "somebody listens, but does not serve you: " + marud.error,
                     "See in 'journalctl -u marud' why it refused; a user without a number of its "
                     "own (the overflow uid, as in a container that maps no users) is never "
                     "served. If it is no marud, stop it.",
                     "marud(8)");
        return;
    }
    if (!marud.answered) {
        findings.add("marud", exists ? Severity::Problem : Severity::Warning,
                     "no marud answers: " + marud.error,
                     "Start it with 'systemctl start marud.socket', or for yourself alone with "
                     "'marud --user'; 'journalctl -u marud' says why it does not run.",
                     "marud(8)");
        return;
    }
    const std::string found =
        "marud " + marud.version + " answers, process " + std::to_string(marud.pid);
    if (marud.version == subject.version)
        findings.ok("marud", found + ", of the same version as maructl", "marud(8)");
    else
        findings.add("marud", Severity::Warning, found + "; maructl is " + subject.version,
                     "Restart marud after an upgrade ('systemctl restart marud'): its workers keep "
                     "what they have stored.",
                     "marud(8)");
}

// Records of sessions stand beside the socket, and let a restarted marud take its sessions back.
void check_runtime_directory(const Subject &subject, Findings &findings) {
    std::string last, refused;
    for (const std::string &path : subject.sockets) {
        const std::string folder = folder_of(path);
        if (folder == last)
            continue;
        last = folder;
        const auto info = subject.host.status(folder);
        const std::string &asked = info ? folder : folder_of(folder);
        const int failed = subject.host.access(asked, W_OK | X_OK);
        if (failed == 0 || (info && subject.marud.answered)) {
            findings.ok("runtime-directory",
                        "'" + folder + "' " +
                            (!info         ? "can be made by you"
                             : failed == 0 ? "can be written by you"
                                           : "is marud's (" + permissions(*info) + ")"),
                        "marud.toml(5)");
            return;
        }
        refused += (refused.empty() ? "'" : ", '") + asked + "': " + errno_text(failed);
    }
    findings.add("runtime-directory", Severity::Warning,
                 "no place where you could start a marud: " + refused,
                 "Let systemd start it (marud.socket makes /run/maru), or set XDG_RUNTIME_DIR to a "
                 "directory of your own on tmpfs.",
                 "marud.toml(5)");
}

void check_fd_store(const Subject &subject, Findings &findings) {
    if (!subject.marud.answered)
        return;
    if (subject.marud.fdstore == "systemd")
        findings.ok("fd-store", "systemd keeps marud's segments over a restart",
                    "systemd.service(5)");
    else
        findings.add("fd-store", Severity::Note,
                     "nobody keeps marud's segments over a restart: the workers pass them again, "
                     "those of a worker that has died meanwhile are lost",
                     "Let systemd start marud, with FileDescriptorStoreMax= as in marud.service.",
                     "marud(8), systemd.service(5)");
}

}  // namespace maru::maructl
