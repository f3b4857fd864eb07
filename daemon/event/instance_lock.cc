#include "daemon/event/instance_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>

#include <cerrno>
#include <cstdio>
#include <fstream>

namespace maru {
namespace {

// The kernel's own table of locks; a holder outside of our pid namespace has no number there.
std::string holder_of(int fd) {
    struct stat info = {};
    if (::fstat(fd, &info) < 0)
        return "another process";
    char file[64];
    std::snprintf(file, sizeof file, "%02x:%02x:%llu", major(info.st_dev), minor(info.st_dev),
                  static_cast<unsigned long long>(info.st_ino));
    std::ifstream locks("/proc/locks");
    std::string number, type, mode, access, pid, place;
    while (locks >> number >> type >> mode >> access >> pid >> place) {
        if (type == "FLOCK" && place == file && pid != "0" && pid != "-1") {
            std::string command = "?";
            std::ifstream comm("/proc/" + pid + "/comm");
            std::getline(comm, command);
            return "process " + pid + " (" + command + ")";
        }
        locks.ignore(1024, '\n');
    }
    return "another process";
}

}  // namespace

Result<InstanceLock> InstanceLock::take(const std::string &directory, int wait_ms) {
    std::string path = directory + "/marud.lock";
    UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
    if (!fd)
        return Error{errno, "open '" + path + "'"};
    constexpr int kStepMs = 50;
    for (int waited = 0; ::flock(fd.get(), LOCK_EX | LOCK_NB) < 0; waited += kStepMs) {
        if (errno == EINTR)
            continue;
        if (errno != EWOULDBLOCK)
            return Error{errno, "flock '" + path + "'"};
        if (waited >= wait_ms)
            return Error{EBUSY, "directory '" + directory + "' is in use by " +
                                    holder_of(fd.get()) + "; one marud at a time may run in it"};
        timespec step = {0, kStepMs * 1'000'000L};
        ::nanosleep(&step, nullptr);
    }
    if (::ftruncate(fd.get(), 0) == 0)
        ::dprintf(fd.get(), "%d\n", ::getpid());
    return InstanceLock(std::move(fd));
}

}  // namespace maru
