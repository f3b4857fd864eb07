#include "tests/integration/marud_fixture.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "libmaru/base/clock.h"
#include "libmaru/wire/packet_socket.h"

extern char **environ;

namespace maru::test {

// Reads $NOTIFY_SOCKET all the time, as systemd does: what marud sent before it was killed counts.
class Marud::Manager {
  public:
    explicit Manager(const std::string &path) {
        sockaddr_un name = {};
        name.sun_family = AF_UNIX;
        std::strncpy(name.sun_path, path.c_str(), sizeof name.sun_path - 1);
        socket_.reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        int ends[2];
        if (!socket_ ||
            ::bind(socket_.get(), reinterpret_cast<sockaddr *>(&name), sizeof name) < 0 ||
            ::pipe2(ends, O_CLOEXEC) < 0)
            throw std::runtime_error("cannot make '" + path + "'");
        stop_read_.reset(ends[0]);
        stop_write_.reset(ends[1]);
        thread_ = std::thread([this] { read_all(); });
    }
    ~Manager() {
        stop_write_.reset();
        thread_.join();
    }

    std::vector<std::string> take() {
        std::lock_guard lock(mutex_);
        return std::exchange(messages_, {});
    }
    bool wait_for(const std::string &text, int timeout_ms) {
        std::unique_lock lock(mutex_);
        return arrived_.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] {
            for (size_t i = 0; i < messages_.size(); ++i)
                if (messages_[i].find(text) != std::string::npos) {
                    messages_.erase(messages_.begin(),
                                    messages_.begin() + static_cast<long>(i) + 1);
                    return true;
                }
            return false;
        });
    }
    // After marud has gone: everything that it had sent.
    void settle() {
        std::unique_lock lock(mutex_);
        arrived_.wait_for(lock, std::chrono::seconds(5), [this] {
            pollfd more = {socket_.get(), POLLIN, 0};
            return ::poll(&more, 1, 0) == 0 && !reading_;
        });
    }
    std::mutex &mutex() { return mutex_; }
    std::map<std::string, UniqueFd> &stored() { return stored_; }  // with the mutex held

  private:
    void read_all() {
        for (;;) {
            pollfd wait[2] = {{socket_.get(), POLLIN, 0}, {stop_read_.get(), POLLIN, 0}};
            ::poll(wait, 2, -1);
            if (wait[1].revents)
                return;
            std::lock_guard lock(mutex_);
            reading_ = true;
            while (read_one()) {
            }
            reading_ = false;
            arrived_.notify_all();
        }
    }
    bool read_one() {
        char text[4096];
        alignas(cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))];
        iovec part = {text, sizeof text};
        msghdr header = {};
        header.msg_iov = &part;
        header.msg_iovlen = 1;
        header.msg_control = control;
        header.msg_controllen = sizeof control;
        ssize_t got = ::recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC);
        if (got < 0)
            return false;
        std::string message(text, static_cast<size_t>(got));
        std::vector<UniqueFd> fds;
        for (cmsghdr *c = CMSG_FIRSTHDR(&header); c; c = CMSG_NXTHDR(&header, c)) {
            size_t count =
                c->cmsg_type == SCM_RIGHTS ? (c->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;
            for (size_t i = 0; i < count; ++i) {
                int fd;
                std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
                fds.emplace_back(fd);
            }
        }
        std::string name;
        if (size_t at = message.find("FDNAME="); at != std::string::npos)
            name = message.substr(at + 7, message.find('\n', at) - at - 7);
        if (message.rfind("FDSTORE=1", 0) == 0 && fds.size() == 1)
            stored_[name] = std::move(fds[0]);
        else if (message.rfind("FDSTOREREMOVE=1", 0) == 0)
            stored_.erase(name);
        messages_.push_back(std::move(message));
        return true;
    }

    UniqueFd socket_, stop_read_, stop_write_;
    std::mutex mutex_;
    std::condition_variable arrived_;
    bool reading_ = false;
    std::vector<std::string> messages_;
    std::map<std::string, UniqueFd> stored_;
    std::thread thread_;
};

namespace {

std::string find_binary(const std::string &given) {
    if (!given.empty())
        return given;
    const char *named = ::getenv("MARU_MARUD");
    return named ? named : MARUD_PATH;
}

// Room for any number; the child writes its own.
const std::string kListenPid = "LISTEN_PID=0000000000";

// Everything the child needs between fork and exec, made before: it may not allocate.
struct Launch {
    std::vector<std::string> words, variables;
    std::vector<char *> argv, envp;
    std::vector<int> fds;        // to become 3, 4, ...
    char *pid_digits = nullptr;  // of LISTEN_PID
    int log = -1;
    std::string binary;

    void finish() {
        for (std::string &word : words)
            argv.push_back(word.data());
        argv.push_back(nullptr);
        for (std::string &variable : variables) {
            if (variable == kListenPid)
                pid_digits = variable.data() + 11;
            envp.push_back(variable.data());
        }
        envp.push_back(nullptr);
    }

    [[noreturn]] void exec() {
        sigset_t none;
        sigemptyset(&none);
        ::sigprocmask(SIG_SETMASK, &none, nullptr);
        ::dup2(log, 2);
        for (int &fd : fds)  // out of the way of the numbers they are to get
            fd = ::fcntl(fd, F_DUPFD_CLOEXEC, 1000);
        for (size_t i = 0; i < fds.size(); ++i)
            ::dup2(fds[i], static_cast<int>(3 + i));
        if (pid_digits) {
            // No leading zeros: they would make it octal.
            pid_t pid = ::getpid(), unit = 1;
            while (pid / unit >= 10)
                unit *= 10;
            for (; unit > 0; unit /= 10)
                *pid_digits++ = static_cast<char>('0' + pid / unit % 10);
            *pid_digits = '\0';
        }
        ::execve(binary.c_str(), argv.data(), envp.data());
        ::_exit(127);
    }
};

}  // namespace

Marud::Marud(MarudOptions options) : options_(std::move(options)) {
    char name[] = "/tmp/marud-test-XXXXXX";
    directory_ = options_.directory;
    if (directory_.empty()) {
        if (!::mkdtemp(name))
            throw std::runtime_error("cannot make a directory in /tmp");
        directory_ = name;
    }
    socket_ = directory_ + "/marud.sock";
    static int count = 0;  // several may share a directory
    notify_ = directory_ + "/notify-" + std::to_string(::getpid()) + "-" + std::to_string(count++);
    manager_ = std::make_unique<Manager>(notify_);
    if (!options_.config.empty())
        set_config(options_.config);
    if (options_.socket_activation) {
        auto bound = wire::listen_seqpacket(socket_, 0666);
        if (!bound)
            throw std::runtime_error(describe(bound.error()));
        listener_ = std::move(*bound);
    }
}

Marud::~Marud() {
    if (pid_ > 0) {
        ::kill(pid_, SIGCONT);
        ::kill(pid_, SIGKILL);
        int status;
        ::waitpid(pid_, &status, 0);
    }
    manager_.reset();
    std::error_code ignored;
    if (options_.directory.empty())
        std::filesystem::remove_all(directory_, ignored);
}

void Marud::fail(const std::string &what) const {
    throw std::runtime_error("marud: " + what + "\n" + log());
}

void Marud::set_config(const std::string &text) {
    options_.config = text;
    std::ofstream(directory_ + "/marud.toml") << text;
}

void Marud::spawn() {
    if (pid_ > 0)
        fail("is running already");
    Launch launch;
    launch.binary = find_binary(options_.binary);
    launch.words = {launch.binary, "--socket", socket_};
    launch.words.push_back("--config");
    launch.words.push_back(options_.config.empty() ? "/dev/null" : directory_ + "/marud.toml");
    launch.words.insert(launch.words.end(), options_.arguments.begin(), options_.arguments.end());

    std::map<std::string, std::string> environment;
    for (char **variable = environ; *variable; ++variable) {
        std::string_view text = *variable;
        size_t equals = text.find('=');
        environment[std::string(text.substr(0, equals))] = text.substr(equals + 1);
    }
    for (const char *name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID",
                             "WATCHDOG_USEC", "RUNTIME_DIRECTORY", "JOURNAL_STREAM"})
        environment.erase(name);
    environment["NOTIFY_SOCKET"] = notify_;
    environment["FDSTORE"] = options_.fdstore ? "4096" : "0";
    if (options_.watchdog_ms > 0)
        environment["WATCHDOG_USEC"] = std::to_string(options_.watchdog_ms * 1000);
    std::string names;
    if (listener_) {
        launch.fds.push_back(listener_.get());
        names = "maru";
    }
    std::unique_lock lock(manager_->mutex());
    if (options_.fdstore) {
        for (const auto &[name, fd] : manager_->stored()) {
            launch.fds.push_back(fd.get());
            names += (names.empty() ? "" : ":") + name;
        }
    }
    if (!launch.fds.empty()) {
        environment["LISTEN_FDS"] = std::to_string(launch.fds.size());
        environment["LISTEN_FDNAMES"] = names;
        environment["LISTEN_PID"] = kListenPid.substr(11);
    }
    for (const auto &[name, value] : options_.environment)
        environment[name] = value;
    for (const auto &[name, value] : environment)
        launch.variables.push_back(name + "=" + value);
    launch.finish();
    UniqueFd log_file(::open((directory_ + "/marud.log").c_str(),
                             O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    launch.log = log_file.get();
    pid_ = ::fork();
    if (pid_ == 0)
        launch.exec();
    if (pid_ < 0)
        fail("cannot fork");
    pidfd_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
}

void Marud::start() {
    manager_->take();
    spawn();
    wait_ready();
}

void Marud::wait_ready() {
    for (int waited = 0; waited < options_.ready_timeout_ms; waited += 100) {
        if (manager_->wait_for("READY=1", 100))
            return;
        if (!running())
            fail("ended instead of being ready");
    }
    fail("is not ready in time");
}

int Marud::wait_exit(int timeout_ms) {
    pollfd ended = {pidfd_.get(), POLLIN, 0};
    if (::poll(&ended, 1, timeout_ms) != 1)
        fail("does not end");
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = 0;
    pidfd_.reset();
    manager_->settle();
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int Marud::stop() {
    signal(SIGTERM);
    return wait_exit(20'000);
}

void Marud::kill() {
    signal(SIGKILL);
    wait_exit(20'000);
}

void Marud::signal(int number) {
    if (pid_ <= 0 || ::kill(pid_, number) < 0)
        fail("is not there to be signalled");
}

bool Marud::running() {
    pollfd ended = {pidfd_.get(), POLLIN, 0};
    return pid_ > 0 && ::poll(&ended, 1, 0) == 0;
}

std::string Marud::log() const {
    std::ifstream file(directory_ + "/marud.log");
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

size_t Marud::open_fds() const {
    size_t count = 0;
    for ([[maybe_unused]] const auto &entry :
         std::filesystem::directory_iterator("/proc/" + std::to_string(pid_) + "/fd"))
        ++count;
    return count;
}

std::vector<std::string> Marud::stored() const {
    std::lock_guard lock(manager_->mutex());
    std::vector<std::string> names;
    for (const auto &[name, fd] : manager_->stored())
        names.push_back(name);
    return names;
}

void Marud::drop_stored() {
    std::lock_guard lock(manager_->mutex());
    manager_->stored().clear();
}

std::vector<std::string> Marud::notifications() { return manager_->take(); }

bool Marud::wait_notification(const std::string &text, int timeout_ms) {
    return manager_->wait_for(text, timeout_ms);
}

}  // namespace maru::test
