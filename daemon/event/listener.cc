#include "daemon/event/listener.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>

// Linux 6.16; headers of Debian 12 do not name it.
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

namespace maru {
namespace {

constexpr uint64_t kRestUsec = 50'000;

UniqueFd open_reserve() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

bool set_pass_rights(int socket, bool pass) {
    int value = pass ? 1 : 0;
    return ::setsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &value, sizeof value) == 0;
}

bool set_pass_credentials(int socket, bool pass) {
    const int on = pass;
    return ::setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0;
}

Listener::Listener(sd_event *loop, UniqueFd socket, std::string own_path, Callbacks callbacks)
    : loop_(loop),
      socket_(std::move(socket)),
      reserve_(open_reserve()),
      own_path_(std::move(own_path)),
      callbacks_(std::move(callbacks)) {
    struct stat info = {};
    if (!own_path_.empty() && ::lstat(own_path_.c_str(), &info) == 0) {
        own_device_ = info.st_dev;
        own_inode_ = info.st_ino;
    }
}

Listener::~Listener() { stop(); }

Result<void> Listener::start() {
    int flags = ::fcntl(socket_.get(), F_GETFL);
    if (flags < 0 || ::fcntl(socket_.get(), F_SETFL, flags | O_NONBLOCK) < 0)
        return Error{errno, "make the listening socket non-blocking"};
    set_pass_rights(socket_.get(), false);
    // For kernels that bind a client by SCM_CREDENTIALS: accepted sockets inherit this one as well,
    // and a client may have sent its hello before it is accepted.
    set_pass_credentials(socket_.get(), true);
    sd_event_source *source = nullptr;
    int r = sd_event_add_io(loop_, &source, socket_.get(), EPOLLIN, on_readable, this);
    if (r < 0)
        return Error{-r, "watch the listening socket"};
    readable_.reset(source);
    sd_event_source_set_description(source, "listener");
    r = sd_event_add_time_relative(loop_, &source, CLOCK_BOOTTIME, kRestUsec, 0, on_rested, this);
    if (r < 0)
        return Error{-r, "add a timer for the listening socket"};
    rested_.reset(source);
    sd_event_source_set_enabled(source, SD_EVENT_OFF);
    return {};
}

void Listener::stop() {
    readable_.reset();
    rested_.reset();
    socket_.reset();
    struct stat info = {};
    // Another marud may have taken the path since: then it is not ours to remove.
    if (!own_path_.empty() && ::lstat(own_path_.c_str(), &info) == 0 &&
        info.st_dev == own_device_ && info.st_ino == own_inode_)
        ::unlink(own_path_.c_str());
    own_path_.clear();
}

int Listener::on_readable(sd_event_source *, int, uint32_t, void *userdata) {
    static_cast<Listener *>(userdata)->accept_some();
    return 0;
}

int Listener::on_rested(sd_event_source *, uint64_t, void *userdata) {
    auto *self = static_cast<Listener *>(userdata);
    if (!self->reserve_)
        self->reserve_ = open_reserve();
    sd_event_source_set_enabled(self->readable_.get(), SD_EVENT_ON);
    return 0;
}

void Listener::accept_some() {
    for (int i = 0; i < kAcceptsPerTurn && socket_; ++i) {
        UniqueFd client(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (client) {
            callbacks_.accepted(std::move(client));
            continue;
        }
        int code = errno;
        if (code == EINTR || code == ECONNABORTED)
            continue;
        if (code == EAGAIN)
            return;
        if ((code == EMFILE || code == ENFILE) && reserve_) {
            reserve_.reset();
            UniqueFd turned_away(
                ::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
            if (turned_away)
                callbacks_.refused(std::move(turned_away));
        }
        return rest(Error{code, "accept a client"});
    }
}

void Listener::rest(const Error &why) {
    sd_event_source_set_enabled(readable_.get(), SD_EVENT_OFF);
    sd_event_source_set_time_relative(rested_.get(), kRestUsec);
    sd_event_source_set_enabled(rested_.get(), SD_EVENT_ONESHOT);
    callbacks_.out_of_descriptors(why);
}

}  // namespace maru
