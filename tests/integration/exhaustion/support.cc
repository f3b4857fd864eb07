#include "tests/integration/exhaustion/support.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <vector>

namespace maru::test {

MarudOptions shimmed(const CallShim &shim, const std::string &config) {
    MarudOptions options;
    options.config = config;
    options.environment = shim.environment();
    options.fdstore = false;  // descriptors for the manager would be counted among the others
    return options;
}

WorkerOptions without_pool(const Marud &marud, const std::string &engine) {
    WorkerOptions options;
    options.socket = marud.socket();
    options.engine = engine;
    options.pool_bytes = 0;
    return options;
}

maru_pool_options pool_of(uint64_t bytes) {
    maru_pool_options options{};
    options.size = sizeof options;
    options.capacity_bytes = bytes;
    options.page_bytes = kPage;
    options.wait_populated = 1;
    options.populate_margin_mib = 1;
    return options;
}

void expect_works(Worker &worker, uint32_t number) {
    const int stored = worker.store(number);
    ASSERT_TRUE(stored == 0 || stored == -EEXIST) << maru_last_error();
    maru_lease *lease = worker.acquire(number);
    ASSERT_NE(lease, nullptr) << maru_last_error();
    EXPECT_TRUE(worker.shows(lease, number));
    EXPECT_EQ(worker.release(lease), 0) << maru_last_error();
}

Unchanged::Unchanged(Marud &marud)
    : marud_(marud),
      pid_(marud.pid()),
      fds_(marud.open_fds()),
      sessions_(query_status(marud.socket()).sessions) {}

void Unchanged::expect() {
    ASSERT_TRUE(marud_.running()) << marud_.log();
    EXPECT_EQ(marud_.pid(), pid_);
    EXPECT_EQ(wait_uncharged(marud_.socket(), 10'000), "") << marud_.log();
    EXPECT_TRUE(eventually([&] { return query_status(marud_.socket()).sessions <= sessions_; }));
    // The question itself is a connection, which marud may be closing still.
    EXPECT_TRUE(eventually([&] { return marud_.open_fds() <= fds_; }))
        << marud_.open_fds() << " descriptors, " << fds_ << " before";
}

int64_t cpu_ms(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::stringstream text;
    text << file.rdbuf();
    std::string stat = text.str();
    std::istringstream fields(stat.substr(stat.rfind(')') + 1));
    std::string skipped;
    for (int field = 3; field < 14; ++field)
        fields >> skipped;
    int64_t user = 0, system = 0;
    fields >> user >> system;
    return (user + system) * 1000 / ::sysconf(_SC_CLK_TCK);
}

bool own_mounts() {
    static const bool made =
        ::unshare(CLONE_NEWNS) == 0 && ::mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    return made;
}

TinyTmpfs::TinyTmpfs(int kib) {
    char path[] = "/tmp/marud-tmpfs-XXXXXX";
    if (!::mkdtemp(path))
        throw std::runtime_error("cannot make a directory in /tmp");
    path_ = path;
    std::string size = "size=" + std::to_string(kib) + "k,mode=0755";
    if (::mount("tmpfs", path, "tmpfs", 0, size.c_str()) < 0)
        throw std::runtime_error(std::string("cannot mount a tmpfs: ") + std::strerror(errno));
}

TinyTmpfs::~TinyTmpfs() {
    ::umount2(path_.c_str(), MNT_DETACH);
    ::rmdir(path_.c_str());
}

void TinyTmpfs::fill() {
    int fd = ::open((path_ + "/filler").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    std::vector<char> block(4096, 'x');
    while (::write(fd, block.data(), block.size()) > 0) {
    }
    ::close(fd);
}

void TinyTmpfs::free() { ::unlink((path_ + "/filler").c_str()); }

void TinyTmpfs::make_read_only(const std::string &below) {
    const std::string at = path_ + "/" + below;
    if (::mount(at.c_str(), at.c_str(), nullptr, MS_BIND, nullptr) < 0 ||
        ::mount(nullptr, at.c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) < 0)
        throw std::runtime_error("cannot mount '" + at + "' read-only: " + std::strerror(errno));
}

void TinyTmpfs::make_writable(const std::string &below) {
    ::umount2((path_ + "/" + below).c_str(), MNT_DETACH);
}

}  // namespace maru::test
