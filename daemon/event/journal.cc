#include "daemon/event/journal.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace maru {
namespace {

constexpr size_t kMaxLine = 2048;  // below PIPE_BUF: a pipe that polls writable takes it whole

bool is_journal_stream(int fd) {
    const char *text = ::getenv("JOURNAL_STREAM");
    unsigned long long device = 0, inode = 0;
    struct stat info = {};
    return text && std::sscanf(text, "%llu:%llu", &device, &inode) == 2 &&
           ::fstat(fd, &info) == 0 && info.st_dev == device && info.st_ino == inode;
}

UniqueFd connect_datagram(const std::string &path) {
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    if (path.size() >= sizeof name.sun_path)
        return UniqueFd();
    std::memcpy(name.sun_path, path.data(), path.size());
    UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd && ::connect(fd.get(), reinterpret_cast<sockaddr *>(&name), sizeof name) < 0)
        fd.reset();
    return fd;
}

// One line to one line: what a client named must not look like another message.
std::string printable(std::string_view text) {
    std::string out(text.substr(0, kMaxLine));
    for (char &c : out)
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
            c = '?';
    return out;
}

}  // namespace

Journal::Journal(int fd, const std::string &native_address) : fd_(fd) {
    if (is_journal_stream(fd)) {
        native_ = connect_datagram(native_address);
        form_ = native_ ? Form::Native : Form::Prefixed;
    } else if (::isatty(fd)) {
        form_ = Form::Terminal;
    }
}

void Journal::log(int priority, std::string_view message, std::initializer_list<LogField> fields) {
    if (priority > level_)
        return;
    std::string text = printable(message);
    if (dropped_ > 0)
        text += " (" + std::to_string(dropped_) + " lines before this one were lost)";
    bool written =
        form_ == Form::Native ? send_native(priority, text, fields) : write_line(priority, text);
    dropped_ = written ? 0 : dropped_ + 1;
    all_dropped_ += !written;
}

bool Journal::write_line(int priority, std::string_view message) {
    std::string line =
        form_ == Form::Terminal ? std::string("marud: ") : "<" + std::to_string(priority) + ">";
    line += message;
    line += '\n';
    // Whoever reads a pipe may stop reading: it must not stop us.
    pollfd ready = {fd_, POLLOUT, 0};
    if (::poll(&ready, 1, 0) != 1 || !(ready.revents & POLLOUT))
        return false;
    return ::write(fd_, line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

bool Journal::send_native(int priority, std::string_view message,
                          std::initializer_list<LogField> fields) {
    std::string packet = "PRIORITY=" + std::to_string(priority) +
                         "\nSYSLOG_IDENTIFIER=marud\nMESSAGE=" + std::string(message) + "\n";
    for (const LogField &field : fields)
        packet += std::string(field.name) + "=" + printable(field.value) + "\n";
    return ::send(native_.get(), packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

}  // namespace maru
