#include "tests/integration/hostile/strange_files.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

namespace maru::test {
namespace {

std::string why(const char *what) { return std::string(what) + ": " + std::strerror(errno); }

UniqueFd memfd(uint64_t bytes, int seals) {
    UniqueFd fd(::memfd_create("strange", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (fd && (::ftruncate(fd.get(), static_cast<off_t>(bytes)) < 0 ||
               (seals && ::fcntl(fd.get(), F_ADD_SEALS, seals) < 0)))
        fd.reset();
    return fd;
}

}  // namespace

std::vector<StrangeFile> strange_files(uint64_t segment_bytes) {
    std::vector<StrangeFile> files;
    auto add = [&](const char *name, UniqueFd fd) {
        std::string missing = fd ? "" : why(name);
        files.push_back({name, std::move(fd), std::move(missing)});
    };
    add("a directory", UniqueFd(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
    add("a pidfd", UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0))));
    add("an epoll", UniqueFd(::epoll_create1(EPOLL_CLOEXEC)));
    char params[120] = {};  // struct io_uring_params, all zero
    add("an io_uring", UniqueFd(static_cast<int>(::syscall(SYS_io_uring_setup, 4, params))));
    add("/dev/null", UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)));
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC) == 0) {
        add("the reading end of a pipe", UniqueFd(ends[0]));
        add("the writing end of a pipe", UniqueFd(ends[1]));
    }
    constexpr int kSize = F_SEAL_SHRINK | F_SEAL_GROW;
    add("a memfd without seals", memfd(segment_bytes, 0));
    add("a memfd that is not sealed for writing", memfd(segment_bytes, kSize));
    add("a memfd of the wrong size", memfd(segment_bytes / 2, kSize | F_SEAL_FUTURE_WRITE));
    add("a memfd of another origin", memfd(segment_bytes, kSize | F_SEAL_FUTURE_WRITE));
    add("a memfd that takes no more seals",
        memfd(segment_bytes, kSize | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL));
    UniqueFd writable = memfd(segment_bytes, kSize | F_SEAL_FUTURE_WRITE);
    std::string path = "/proc/self/fd/" + std::to_string(writable.get());
    add("a memfd opened for reading only", UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)));
    return files;
}

LingeringSocket::LingeringSocket() {
    file_.name = "a TCP socket that lingers for 60 s with unsent data";
    listener_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof name;
    int small = 4096;
    // The peer's window is inherited from the listener: small, so that the data stays unsent.
    ::setsockopt(listener_.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    linger wait = {1, 60};
    if (!listener_ || !client ||
        ::bind(listener_.get(), reinterpret_cast<sockaddr *>(&name), sizeof name) < 0 ||
        ::listen(listener_.get(), 1) < 0 ||
        ::getsockname(listener_.get(), reinterpret_cast<sockaddr *>(&name), &length) < 0 ||
        (::connect(client.get(), reinterpret_cast<sockaddr *>(&name), sizeof name) < 0 &&
         errno != EINPROGRESS) ||
        ::setsockopt(client.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof wait) < 0) {
        file_.missing = why("a TCP connection over the loopback device");
        return;
    }
    peer_.reset(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::vector<char> data(1 << 20);
    while (::send(client.get(), data.data(), data.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
    // A non-blocking socket lingers as long as a blocking one when it is closed.
    ::fcntl(client.get(), F_SETFL, ::fcntl(client.get(), F_GETFL) & ~O_NONBLOCK);
    file_.fd = std::move(client);
}

// The filesystem, by hand: a root directory with one empty file, "file". FLUSH gets no answer.
struct NeverFlushedFile::Server {
    UniqueFd device, stop_read, stop_write;
    std::atomic<int> flushes = 0;
    std::thread thread;

    void answer(const fuse_in_header &request, int error, const void *data = nullptr,
                size_t size = 0) {
        char reply[512];
        fuse_out_header header = {static_cast<uint32_t>(sizeof(fuse_out_header) + size), error,
                                  request.unique};
        std::memcpy(reply, &header, sizeof header);
        if (size)
            std::memcpy(reply + sizeof header, data, size);
        [[maybe_unused]] ssize_t written = ::write(device.get(), reply, header.len);
    }

    static fuse_attr attributes(uint64_t node) {
        fuse_attr attr = {};
        attr.ino = node;
        attr.mode = node == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0666;
        attr.nlink = 1;
        return attr;
    }

    void serve(const char *packet) {
        fuse_in_header request;
        std::memcpy(&request, packet, sizeof request);
        const char *body = packet + sizeof request;
        switch (request.opcode) {
            case FUSE_INIT: {
                fuse_init_in in = {};
                std::memcpy(&in, body, 16);
                fuse_init_out out = {};
                out.major = FUSE_KERNEL_VERSION;
                out.minor =
                    FUSE_KERNEL_MINOR_VERSION < in.minor ? FUSE_KERNEL_MINOR_VERSION : in.minor;
                out.max_write = 4096;
                return answer(request, 0, &out, sizeof out);
            }
            case FUSE_LOOKUP: {
                if (std::strcmp(body, "file") != 0)
                    return answer(request, -ENOENT);
                fuse_entry_out out = {};
                out.nodeid = 2;
                out.entry_valid = out.attr_valid = 3600;
                out.attr = attributes(2);
                return answer(request, 0, &out, sizeof out);
            }
            case FUSE_GETATTR: {
                fuse_attr_out out = {};
                out.attr_valid = 3600;
                out.attr = attributes(request.nodeid);
                return answer(request, 0, &out, sizeof out);
            }
            case FUSE_OPEN: {
                fuse_open_out out = {};
                return answer(request, 0, &out, sizeof out);
            }
            case FUSE_FLUSH:
                ++flushes;
                return;  // never
            case FUSE_FORGET:
            case FUSE_BATCH_FORGET:
            case FUSE_INTERRUPT:
                return;  // these want no answer
            case FUSE_RELEASE:
                return answer(request, 0);
            default:
                return answer(request, -ENOSYS);
        }
    }

    void run() {
        std::vector<char> packet(1 << 17);
        for (;;) {
            pollfd ready[2] = {{device.get(), POLLIN, 0}, {stop_read.get(), POLLIN, 0}};
            ::poll(ready, 2, -1);
            if (ready[1].revents)
                return;
            ssize_t got = ::read(device.get(), packet.data(), packet.size());
            if (got >= static_cast<ssize_t>(sizeof(fuse_in_header)))
                serve(packet.data());
            else if (got < 0 && errno != EINTR && errno != EAGAIN && errno != ENOENT)
                return;  // unmounted
        }
    }
};

NeverFlushedFile::NeverFlushedFile() {
    file_.name = "a file of a FUSE filesystem that never answers a flush";
    UniqueFd device(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
    if (!device) {
        file_.missing = why("/dev/fuse");
        return;
    }
    char name[] = "/tmp/maru-fuse-XXXXXX";
    if (!::mkdtemp(name)) {
        file_.missing = why("a directory in /tmp");
        return;
    }
    directory_ = name;
    std::string options =
        "fd=" + std::to_string(device.get()) + ",rootmode=40000,user_id=0,group_id=0,allow_other";
    if (::mount("maru-test", name, "fuse", MS_NOSUID | MS_NODEV, options.c_str()) < 0) {
        file_.missing = why("mount of a FUSE filesystem");
        return;
    }
    mounted_ = true;
    server_ = new Server;
    server_->device = std::move(device);
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) < 0) {
        file_.missing = why("a pipe");
        return;
    }
    server_->stop_read.reset(ends[0]);
    server_->stop_write.reset(ends[1]);
    server_->thread = std::thread([server = server_] { server->run(); });
    file_.fd.reset(::open((directory_ + "/file").c_str(), O_RDWR | O_CLOEXEC));
    if (!file_.fd)
        file_.missing = why("open of the FUSE file");
}

int NeverFlushedFile::flushes() const { return server_ ? server_->flushes.load() : 0; }

// The last descriptor of the device aborts the connection: whoever waits for an answer gets ENOTCONN.
void NeverFlushedFile::end() {
    if (server_ && server_->thread.joinable()) {
        server_->stop_write.reset();
        server_->thread.join();
    }
    if (server_)
        server_->device.reset();
}

NeverFlushedFile::~NeverFlushedFile() {
    end();
    file_.fd.reset();
    if (mounted_)
        ::umount2(directory_.c_str(), MNT_DETACH);
    if (!directory_.empty())
        ::rmdir(directory_.c_str());
    delete server_;
}

}  // namespace maru::test
