#include "tests/integration/hostile/hostile_test.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "tests/integration/status_query.h"

namespace maru::test {
namespace {

// Small limits, so that an attack reaches them soon; connections as many as by default.
constexpr char kConfig[] = R"(
[sessions]
timeout = "5s"
max = 64
max_per_uid = 24
leases_per_session = 64
[cpu]
host_bytes = "64M"
uid_bytes = "8M"
worker_bytes = "4M"
segment_bytes = "64K"
[limits]
namespaces = 64
namespaces_per_uid = 8
descriptors_per_uid = 100
)";

constexpr bool kSanitized =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    true;
#else
    false;
#endif

uint64_t resident_bytes(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
    uint64_t size = 0, resident = 0;
    file >> size >> resident;
    return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

// What must be as before. Namespaces stay for a life of marud by design, up to their limit.
std::vector<std::pair<const char *, uint64_t>> counters(Marud &marud) {
    wire::StatusReply s = query_status(marud.socket());
    return {{"descriptors", marud.open_fds()},
            {"stored descriptors", marud.stored().size()},
            {"sessions", s.sessions},
            {"attached", s.attached},
            {"pools", s.pools},
            {"objects", s.objects},
            {"replicas", s.replicas},
            {"leases", s.leases},
            {"reserved bytes", s.host_reserved_bytes},
            {"unproven bytes", s.unproven_bytes},
            {"capacity", s.usage.capacity_bytes},
            {"allocated", s.usage.allocated_bytes},
            {"ready", s.usage.ready_bytes},
            {"retiring", s.usage.retiring_bytes},
            {"quarantined", s.usage.quarantined_bytes},
            {"draining", s.draining},
            {"epoch", s.epoch}};
}

}  // namespace

std::unique_ptr<Marud> HostileTest::marud_;
std::unique_ptr<Witness> HostileTest::witness_;
pid_t HostileTest::pid_ = 0;

namespace {

// Before the fixture of a test framework is gone: a thread of ours must not outlive main().
class EndOfAll : public ::testing::Environment {
  public:
    explicit EndOfAll(std::function<void()> end) : end_(std::move(end)) {}
    void TearDown() override { end_(); }

  private:
    std::function<void()> end_;
};

}  // namespace

void HostileTest::SetUpTestSuite() {
    if (marud_)
        return;
    MarudOptions options;
    options.config = kConfig;
    options.socket_activation = true;  // a socket that any user may connect to
    // In memory, as /run is: marud writes a record of each session before it answers.
    char directory[] = "/dev/shm/maru-hostile-XXXXXX";
    if (::mkdtemp(directory))
        options.directory = directory;
    marud_ = std::make_unique<Marud>(std::move(options));
    ::chmod(marud_->directory().c_str(), 0755);
    marud_->start();
    pid_ = marud_->pid();
    witness_ = std::make_unique<Witness>(path(), pid_);
    ::testing::AddGlobalTestEnvironment(new EndOfAll([] {
        witness_.reset();
        const std::string place = marud_->options().directory;
        marud_.reset();
        if (!place.empty())
            std::filesystem::remove_all(place);
    }));
    // What marud allocates once for the first clients belongs to no attack.
    run_child(kAttackerUid, [] {
        std::vector<Party> crowd;
        for (uint32_t i = 0; i < 8; ++i)
            crowd.push_back(worker(path(), kAttackerUid, 100 + i, "w" + std::to_string(i)));
    });
}

void HostileTest::SetUp() { ASSERT_EQ(marud().pid(), pid_); }

void HostileTest::attack(const std::function<void()> &attack,
                         const std::function<void(pid_t)> &meanwhile) {
    surround([&] { return run_child(kAttackerUid, attack, 60'000, meanwhile); });
}

void HostileTest::surround(const std::function<std::string()> &attack) {
    std::string late;
    for (int attempt = 1; attempt <= kAttempts; ++attempt) {
        // What an earlier case left to the reaper is done first.
        auto before = counters(marud());
        for (int waited = 0; waited < 10'000; waited += 50) {
            ::usleep(50'000);
            auto now = counters(marud());
            if (std::exchange(before, now) == now)
                break;
        }
        witness_->take();
        ::usleep(500'000);
        Witness::Figures quiet = witness_->take();
        ASSERT_EQ(quiet.problem, "");
        uint64_t memory = resident_bytes(pid_);

        EXPECT_EQ(attack(), "");
        // Also after a short one the witness has met what it left behind.
        ::usleep(200'000);

        Witness::Figures during = witness_->take();
        EXPECT_EQ(during.problem, "");
        EXPECT_GT(during.probes, 0u);
        ASSERT_TRUE(marud().running()) << marud().log();
        EXPECT_EQ(marud().pid(), pid_);
        // Exits are proven and descriptors closed in the background.
        std::string differs = "?";
        for (int waited = 0; !differs.empty() && waited < 20'000; waited += 20) {
            auto after = counters(marud());
            differs.clear();
            for (size_t i = 0; i < before.size(); ++i)
                if (after[i].second != before[i].second)
                    differs += std::string(after[i].first) + " " +
                               std::to_string(before[i].second) + " -> " +
                               std::to_string(after[i].second) + "; ";
            if (!differs.empty())
                ::usleep(20'000);
        }
        EXPECT_EQ(differs, "");
        uint64_t grown = std::max(resident_bytes(pid_), memory) - memory;
        if (!kSanitized) {  // a sanitizer keeps freed memory back on purpose
            EXPECT_LE(grown, kMemoryAllowance);
        }

        double bound =
            std::max(kBoundMs, kNoise * std::max({quiet.marud_ms, quiet.echo_ms, during.echo_ms}));
        std::printf(
            "  witness: %llu probes, longest %.2f ms, %.2f ms by the clock (quiet: %.2f, "
            "%.2f; a bare wake-up %.2f, quiet %.2f; bound %.2f); marud grew by %llu KiB\n",
            static_cast<unsigned long long>(during.probes), during.marud_ms, during.raw_ms,
            quiet.marud_ms, quiet.raw_ms, during.echo_ms, quiet.echo_ms, bound,
            static_cast<unsigned long long>(grown >> 10));
        if (HasFailure() || kSanitized || during.marud_ms <= bound)
            return;
        late += std::to_string(during.marud_ms) + " ms, bound " + std::to_string(bound) + " ms; ";
    }
    ADD_FAILURE() << "another client waited too long each time: " << late;
}

}  // namespace maru::test
