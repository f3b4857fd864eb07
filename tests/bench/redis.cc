#include "tests/bench/redis.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "tests/bench/pin.h"
#include "tests/bench/suite.h"

namespace maru::bench {

Redis::Redis() {
    std::string name = (std::filesystem::temp_directory_path() / "maru-redis-XXXXXX").string();
    if (!::mkdtemp(name.data()))
        throw std::runtime_error("no temporary folder at " + name);
    folder_ = name;
    const std::string path = folder_ + "/redis.sock";
    child_ = ::fork();
    if (child_ == 0) {
        pin(0, server_cpu());
        const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
        ::dup2(null, STDOUT_FILENO);
        ::dup2(null, STDERR_FILENO);
        ::execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", path.c_str(),
                 "--save", "", "--appendonly", "no", "--dir", folder_.c_str(),
                 static_cast<char *>(nullptr));
        ::_exit(127);
    }
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof address.sun_path, "%s", path.c_str());
    for (int tries = 0; tries < 500; ++tries) {
        socket_ = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (::connect(socket_.get(), reinterpret_cast<sockaddr *>(&address), sizeof address) == 0)
            return;
        if (::waitpid(child_, nullptr, WNOHANG) == child_) {
            child_ = -1;
            break;
        }
        const timespec moment = {0, 10000000};
        ::nanosleep(&moment, nullptr);
    }
    const bool started = child_ > 0;
    if (started) {
        ::kill(child_, SIGKILL);
        ::waitpid(child_, nullptr, 0);
    }
    std::filesystem::remove_all(folder_);
    throw NotMeasurable(started ? "redis-server does not answer" : "redis-server is not installed");
}

Redis::~Redis() {
    socket_.reset();
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
}

void Redis::send(const std::string &command) {
    for (size_t done = 0; done < command.size();) {
        const ssize_t sent =
            ::send(socket_.get(), command.data() + done, command.size() - done, MSG_NOSIGNAL);
        if (sent <= 0)
            throw std::runtime_error("redis-server is gone");
        done += static_cast<size_t>(sent);
    }
}

std::string Redis::line() {
    for (;;) {
        const size_t end = input_.find("\r\n");
        if (end != std::string::npos) {
            std::string found = input_.substr(0, end);
            input_.erase(0, end + 2);
            if (found.empty() || found[0] == '-')
                throw std::runtime_error("redis-server: " + found);
            return found;
        }
        char piece[4096];
        const ssize_t got = ::recv(socket_.get(), piece, sizeof piece, 0);
        if (got <= 0)
            throw std::runtime_error("redis-server is gone");
        input_.append(piece, static_cast<size_t>(got));
    }
}

void Redis::append_key(std::string &command, size_t key) {
    char text[64];
    std::snprintf(text, sizeof text, "$32\r\n%032zx\r\n", key * 0x9e3779b97f4a7c15u);
    command += text;
}

void Redis::fill(size_t keys, size_t value_bytes) {
    const std::string value(value_bytes, 'v');
    const size_t together = std::max<size_t>(1, (64 << 10) / (value_bytes + 100));
    for (size_t first = 0; first < keys; first += together) {
        const size_t end = std::min(keys, first + together);
        std::string commands;
        for (size_t key = first; key < end; ++key) {
            commands += "*3\r\n$3\r\nSET\r\n";
            append_key(commands, key);
            commands += "$" + std::to_string(value_bytes) + "\r\n" + value + "\r\n";
        }
        send(commands);
        for (size_t key = first; key < end; ++key)
            line();
    }
}

std::string Redis::exists_command(size_t first, size_t count) {
    std::string command = "*" + std::to_string(count + 1) + "\r\n$6\r\nEXISTS\r\n";
    for (size_t key = first; key < first + count; ++key)
        append_key(command, key);
    return command;
}

int64_t Redis::exists(const std::string &command) {
    send(command);
    return std::atoll(line().c_str() + 1);
}

void Redis::get(size_t key, uint8_t *value, size_t value_bytes) {
    std::string command = "*2\r\n$3\r\nGET\r\n";
    append_key(command, key);
    send(command);
    if (line() != "$" + std::to_string(value_bytes))
        throw std::runtime_error("redis-server: GET of another size");
    size_t done = std::min(input_.size(), value_bytes);
    std::memcpy(value, input_.data(), done);
    input_.erase(0, done);
    while (done < value_bytes) {
        const ssize_t got = ::recv(socket_.get(), value + done, value_bytes - done, 0);
        if (got <= 0)
            throw std::runtime_error("redis-server is gone");
        done += static_cast<size_t>(got);
    }
    while (input_.size() < 2) {
        char end[2];
        const ssize_t got = ::recv(socket_.get(), end, 2 - input_.size(), 0);
        if (got <= 0)
            throw std::runtime_error("redis-server is gone");
        input_.append(end, static_cast<size_t>(got));
    }
    input_.erase(0, 2);
}

}  // namespace maru::bench
