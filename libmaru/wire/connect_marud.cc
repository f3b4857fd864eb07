#include "libmaru/wire/connect_marud.h"

#include <cerrno>
#include <cstring>

#include "libmaru/wire/packet_socket.h"

namespace maru::wire {

namespace {

bool try_the_next(int code) {
    return code == ENOENT || code == ENOTDIR || code == EACCES || code == ECONNREFUSED;
}

}  // namespace

Result<UniqueFd> connect_marud(std::span<const std::string> paths, int64_t deadline_ns) {
    std::string tried;
    for (const std::string &path : paths) {
        auto fd = connect_seqpacket(path, deadline_ns);
        if (fd)
            return fd;
        if (&path == &paths.back() || !try_the_next(fd.error().code))
            return Error{fd.error().code, tried + fd.error().message};
        tried += describe(fd.error()) + "; ";
    }
    return Error{ENOENT, "connect to marud: no path to try"};
}

}  // namespace maru::wire
