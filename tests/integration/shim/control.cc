#include "tests/integration/shim/control.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>

namespace maru::test {
namespace {

std::string make_file() {
    char path[] = "/tmp/marud-shim-XXXXXX";
    int fd = ::mkostemp(path, O_CLOEXEC);
    if (fd < 0 || ::ftruncate(fd, sizeof(shim_control)) < 0)
        throw std::runtime_error("cannot make a file in /tmp");
    ::close(fd);
    return path;
}

// A sanitizer wants to come first, and would only see that it does not.
std::string sanitizer_options() {
    const char *given = ::getenv("ASAN_OPTIONS");
    return (given ? std::string(given) + ":" : "") + "verify_asan_link_order=0";
}

}  // namespace

CallShim::CallShim() : path_(make_file()) {
    map();
    control_->magic = SHIM_MAGIC;
}

CallShim::CallShim(const std::string &path) : path_(path) { map(); }

CallShim::~CallShim() {
    ::munmap(control_, sizeof *control_);
    if (owned_)
        ::unlink(path_.c_str());
}

void CallShim::map() {
    int fd = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
    void *at = fd < 0
                   ? MAP_FAILED
                   : ::mmap(nullptr, sizeof *control_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        ::close(fd);
    if (at == MAP_FAILED)
        throw std::runtime_error("cannot map '" + path_ + "'");
    control_ = static_cast<shim_control *>(at);
}

CallShim &CallShim::own() {
    static CallShim *shim = [] {
        const char *path = ::getenv(SHIM_VARIABLE);
        if (!path)
            throw std::runtime_error("this process does not run under the call shim");
        return new CallShim(path);
    }();
    return *shim;
}

std::map<std::string, std::string> CallShim::environment() const {
    return {{"LD_PRELOAD", MARU_CALL_SHIM_PATH},
            {SHIM_VARIABLE, path_},
            {"ASAN_OPTIONS", sanitizer_options()}};
}

void CallShim::fail(shim_call call, int error, int count, int skip,
                    const std::string &path_contains) {
    shim_rule &rule = control_->rules[call];
    pass(call);
    std::memset(rule.match, 0, sizeof rule.match);
    std::strncpy(rule.match, path_contains.c_str(), sizeof rule.match - 1);
    __atomic_store_n(&rule.skip, skip, __ATOMIC_RELAXED);
    __atomic_store_n(&rule.count, count, __ATOMIC_RELAXED);
    __atomic_store_n(&rule.failed, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&rule.error, error, __ATOMIC_RELEASE);
}

void CallShim::pass(shim_call call) {
    __atomic_store_n(&control_->rules[call].error, 0, __ATOMIC_RELEASE);
}

void CallShim::pass_all() {
    for (int call = 0; call < SHIM_CALLS; ++call)
        pass(static_cast<shim_call>(call));
    set_clock_offset(std::chrono::nanoseconds(0));
}

uint32_t CallShim::calls(shim_call call) const {
    return __atomic_load_n(&control_->rules[call].calls, __ATOMIC_RELAXED);
}

uint32_t CallShim::failed(shim_call call) const {
    return __atomic_load_n(&control_->rules[call].failed, __ATOMIC_RELAXED);
}

void CallShim::set_clock_offset(std::chrono::nanoseconds offset) {
    __atomic_store_n(&control_->realtime_offset_ns, offset.count(), __ATOMIC_RELAXED);
}

void run_under_shim(char **argv) {
    if (::getenv(SHIM_VARIABLE)) {
        // Its children start without; a test gives them what it wants them to meet.
        ::unsetenv("LD_PRELOAD");
        return;
    }
    std::string path = make_file();
    shim_control empty = {};
    empty.magic = SHIM_MAGIC;
    int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0 || ::write(fd, &empty, sizeof empty) != static_cast<ssize_t>(sizeof empty))
        throw std::runtime_error("cannot write '" + path + "'");
    ::close(fd);
    ::setenv("LD_PRELOAD", MARU_CALL_SHIM_PATH, 1);
    ::setenv(SHIM_VARIABLE, path.c_str(), 1);
    ::setenv("ASAN_OPTIONS", sanitizer_options().c_str(), 1);
    ::execv("/proc/self/exe", argv);
    throw std::runtime_error("cannot run this program again under the call shim");
}

}  // namespace maru::test
