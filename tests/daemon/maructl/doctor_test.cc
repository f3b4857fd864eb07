// Each check on machines that lack one thing.
#include "daemon/maructl/doctor/doctor.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>

#include "tests/daemon/maructl/fake_host.h"
#include "tests/daemon/maructl/fake_marud.h"

namespace maru::maructl {
namespace {

using namespace test;

std::function<int()> fails(int code) {
    return [code] { return code; };
}

void expect(const Finding &finding, Severity severity, std::initializer_list<const char *> parts) {
    EXPECT_EQ(finding.severity, severity) << finding.check << ": " << finding.found;
    for (const char *part : parts)
        EXPECT_NE((finding.found + "\n" + finding.remedy).find(part), std::string::npos)
            << finding.found << '\n'
            << finding.remedy << " lacks " << part;
    EXPECT_EQ(finding.man.rfind("maru-host(7)", 0), 0u) << finding.man;
    EXPECT_EQ(finding.remedy.empty(), severity == Severity::Ok);
}

TEST(Doctor, AGoodHostHasNothingToComplainAbout) {
    FakeHost host;
    for (const Finding &finding : host.examine().all())
        EXPECT_EQ(finding.severity, Severity::Ok) << finding.check << ": " << finding.found;
}

TEST(Doctor, EveryCheckSaysSomething) {
    std::set<std::string> checks;
    for (const Finding &finding : FakeHost().examine().all())
        checks.insert(finding.check);
    EXPECT_EQ(checks, (std::set<std::string>{"cgroup-memory",
                                             "dax",
                                             "descriptors",
                                             "descriptors-marud",
                                             "fd-store",
                                             "huge-pages",
                                             "io-uring",
                                             "madv-collapse",
                                             "madv-populate-write",
                                             "marud",
                                             "memfd-noexec-seal",
                                             "memlock",
                                             "memlock-marud",
                                             "numa",
                                             "overcommit",
                                             "pidfd",
                                             "runtime-directory",
                                             "seal-future-write",
                                             "shmem-thp",
                                             "so-passrights",
                                             "so-peerpidfd",
                                             "socket",
                                             "swap"}));
}

TEST(Doctor, AKernelFeatureIsJudgedByItsTry) {
    for (auto [check, member, without] :
         {std::tuple("seal-future-write", &Probes::seal_future_write, Severity::Problem),
          {"pidfd", &Probes::pidfd, Severity::Problem},
          {"madv-populate-write", &Probes::populate_write, Severity::Problem},
          {"so-peerpidfd", &Probes::peer_pidfd, Severity::Note},
          {"so-passrights", &Probes::pass_rights, Severity::Note},
          {"memfd-noexec-seal", &Probes::memfd_noexec_seal, Severity::Note},
          {"madv-collapse", &Probes::collapse, Severity::Note}}) {
        FakeHost host;
        host.probes.*member = fails(EINVAL);
        expect(host.find(check), without, {"not so", "EINVAL (Invalid argument)"});
        host.probes.*member = fails(EPERM);
        expect(host.find(check), without, {"EPERM", "seccomp"});
    }
}

TEST(Doctor, SharedMemoryWithoutLargePages) {
    FakeHost host;
    const char *setting = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    host.file(setting, "always within_size advise [never] deny force\n");
    expect(host.find("shmem-thp"), Severity::Ok, {"never", "MADV_COLLAPSE"});
    host.probes.collapse = fails(EINVAL);
    expect(host.find("shmem-thp"), Severity::Warning, {"never", "4 KiB", "'advise'"});
    host.probes.collapse = fails(0);
    host.file(setting, "always within_size advise never [deny] force\n");
    expect(host.find("shmem-thp"), Severity::Warning, {"deny"});
    std::filesystem::remove(host.root + setting);
    expect(host.find("shmem-thp"), Severity::Note, {"no transparent huge pages"});
}

TEST(Doctor, HugePagesAreCountedPerSize) {
    FakeHost host;
    host.huge_pages("1048576", 2, 1, 0);
    expect(host.find("huge-pages"), Severity::Ok, {"1 GiB: 1 free of 2", "2 MiB: 512 free of 512"});
    host.huge_pages("2048", 512, 10, 10);  // promised to somebody
    expect(host.find("huge-pages"), Severity::Note, {"2 MiB: 0 free of 512", "gets none"});
    host.huge_pages("2048", 0, 0, 0);
    expect(host.find("huge-pages"), Severity::Note, {"MARU_HUGE_REQUIRED", "vm.nr_hugepages"});
}

TEST(Doctor, ARefusedBindingMattersWithSeveralNodes) {
    FakeHost host;
    expect(host.find("numa"), Severity::Ok, {"1 NUMA node;"});
    host.probes.bind_memory = fails(EPERM);
    expect(host.find("numa"), Severity::Note, {"EPERM"});
    std::filesystem::create_directories(host.root + "/sys/devices/system/node/node1");
    expect(host.find("numa"), Severity::Warning, {"2 NUMA nodes", "mbind gave EPERM"});
}

TEST(Doctor, SwapAndOvercommit) {
    FakeHost host;
    host.file("/proc/meminfo", "SwapTotal: 4096 kB\nSwapFree: 4096 kB\n");
    expect(host.find("swap"), Severity::Note, {"0 B of 4 MiB"});
    host.file("/proc/meminfo",
              "SwapTotal: 4096 kB\nSwapFree: 1024 kB\nCommitLimit: 2048 kB\n"
              "Committed_AS: 1024 kB\n");
    expect(host.find("swap"), Severity::Warning, {"3 MiB of 4 MiB", "MemorySwapMax=0"});
    host.file("/proc/sys/vm/overcommit_memory", "2\n");
    expect(host.find("overcommit"), Severity::Warning, {"1 MiB of 2 MiB"});
}

TEST(Doctor, AControlGroupThatIsTooSmallForAPool) {
    FakeHost host;
    host.marud.workers = {{99, "engine-a", 3ull << 30, 1ull << 30}};
    host.file("/proc/99/cgroup", "0::/engine\n");
    host.file("/sys/fs/cgroup/engine/memory.max", std::to_string(3ull << 30) + "\n");
    host.file("/sys/fs/cgroup/engine/memory.current", std::to_string(5ull << 29) + "\n");
    const auto of_worker = [&] {
        Finding last;
        for (const Finding &finding : host.examine().all())
            if (finding.check == "cgroup-memory")
                last = finding;
        return last;
    };
    expect(of_worker(), Severity::Warning,
           {"engine 'engine-a' (process 99)", "lack 2 GiB", "cgroup '/engine' has 512 MiB left",
            "MemoryMax="});
    host.marud.workers[0].populated_bytes = 3ull << 30;  // it has all it needs
    expect(of_worker(), Severity::Ok, {"lack 0 B"});
    host.marud.workers.clear();
    host.marud.host_limit_bytes = 4ull << 30;
    expect(host.find("cgroup-memory"), Severity::Note,
           {"host has 1 GiB left", "grant 3.5 GiB", "cpu.host_bytes"});
}

TEST(Doctor, LimitsOfThisProcessAndOfMarud) {
    FakeHost host;
    host.file("/proc/self/limits", FakeHost::limits("8388608", "256"));
    expect(host.find("memlock"), Severity::Note, {"may lock 8 MiB", "LimitMEMLOCK"});
    expect(host.find("descriptors"), Severity::Warning, {"may open 256", "LimitNOFILE"});
    host.file("/proc/4711/limits", FakeHost::limits("65536", "1024"));
    expect(host.find("memlock-marud"), Severity::Note, {"process 4711", "64 KiB"});
    expect(host.find("descriptors-marud"), Severity::Warning, {"process 4711", "1024"});
    std::filesystem::remove(host.root + "/proc/4711/limits");
    expect(host.find("descriptors-marud"), Severity::Note, {"cannot be read"});
    host.file("/proc/self/limits", "rubbish");
    EXPECT_EQ(host.find("memlock").check, "0 findings of memlock");
}

TEST(Doctor, IoUringIsNeverMoreThanANote) {
    FakeHost host;
    host.probes.io_uring = [] { return IoUringProbe{EPERM, {}, false}; };
    expect(host.find("io-uring"), Severity::Note, {"io_uring_setup gave EPERM"});
    host.file("/proc/sys/kernel/io_uring_disabled", "2\n");
    expect(host.find("io-uring"), Severity::Note, {"kernel.io_uring_disabled is 2"});
    host.file("/proc/sys/kernel/io_uring_disabled", "1\n");
    expect(host.find("io-uring"), Severity::Note, {"io_uring_group"});
    host.probes.io_uring = [] { return IoUringProbe{ENOSYS, {}, false}; };
    expect(host.find("io-uring"), Severity::Note, {"ENOSYS", "boot a kernel"});
    host.probes.io_uring = [] { return IoUringProbe{0, {"READ_FIXED", "FSYNC"}, false}; };
    expect(host.find("io-uring"), Severity::Note, {"lacks READ_FIXED, FSYNC"});
}

TEST(Doctor, DaxDevicesAndTheirModes) {
    FakeHost host;
    host.file("/sys/bus/dax/devices/dax0.0/size", "1073741824\n");
    host.file("/dev/dax0.0", "");
    expect(host.find("dax"), Severity::Ok, {"dax0.0, 1 GiB"});
    host.refused["/dev/dax0.0"] = EACCES;
    expect(host.find("dax"), Severity::Note, {"EACCES", "udev"});
    host.link("/sys/bus/dax/devices/dax0.0/driver", "../../drivers/kmem");
    expect(host.find("dax"), Severity::Note, {"system-ram mode", "--mode=devdax dax0.0"});
}

TEST(Doctor, TheSocketAndWhoAnswers) {
    FakeHost host;
    expect(host.find("socket"), Severity::Ok, {"/run/maru/marud.sock", "mode 0", "group "});
    host.refused["/run/maru/marud.sock"] = EACCES;
    expect(host.find("socket"), Severity::Problem, {"EACCES", "SocketMode="});
    host.marud.version = "0.9";
    expect(host.find("marud"), Severity::Warning, {"marud 0.9", "maructl is 1.0", "restart"});
    host.marud.connected = host.marud.answered = false;
    host.marud.error = "connect to '/x': Connection refused";
    expect(host.find("marud"), Severity::Problem, {"Connection refused", "marud.socket"});
    host.marud.connected = true;
    host.marud.error = "marud closed the connection";
    expect(host.find("marud"), Severity::Problem, {"somebody listens", "closed", "overflow uid"});
    host.marud.connected = false;
    host.sockets = {"/nowhere/marud.sock"};  // not installed, or not started: no fault of the host
    expect(host.find("marud"), Severity::Warning, {"no marud answers"});
    host.file("/nowhere/marud.sock", "");
    expect(host.find("socket"), Severity::Problem, {"is no socket"});
}

TEST(Doctor, APlaceForAMarudOfOnesOwn) {
    FakeHost host;
    expect(host.find("runtime-directory"), Severity::Ok, {"can be written by you"});
    host.refused["/run/maru"] = EACCES;
    expect(host.find("runtime-directory"), Severity::Ok, {"is marud's"});
    host.marud.answered = false;
    expect(host.find("runtime-directory"), Severity::Warning,
           {"'/run/maru': EACCES", "XDG_RUNTIME_DIR"});
    std::filesystem::create_directories(host.root + "/run/user/7");
    host.sockets.push_back("/run/user/7/maru/marud.sock");
    expect(host.find("runtime-directory"), Severity::Ok, {"/run/user/7/maru", "can be made"});
    host.refused["/run/user/7"] = EROFS;
    expect(host.find("runtime-directory"), Severity::Warning, {"'/run/user/7': EROFS"});
}

TEST(Doctor, SegmentsThatNobodyKeeps) {
    FakeHost host;
    host.marud.fdstore = "none";
    expect(host.find("fd-store"), Severity::Note, {"FileDescriptorStoreMax="});
    host.marud.answered = false;
    EXPECT_EQ(host.find("fd-store").check, "0 findings of fd-store");
}

// The real tries, wherever this runs: they must come back, and leave no descriptor behind.
TEST(Doctor, TheRealTriesLeaveNothingBehind) {
    const auto descriptors = [] {
        return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
    };
    const Probes probes = system_probes();
    const auto before = descriptors();
    for (auto member : {&Probes::seal_future_write, &Probes::memfd_noexec_seal, &Probes::pidfd,
                        &Probes::peer_pidfd, &Probes::pass_rights, &Probes::populate_write,
                        &Probes::collapse, &Probes::bind_memory}) {
        const int result = (probes.*member)();
        EXPECT_GE(result, 0);
        EXPECT_LT(result, 200);  // an errno
    }
    EXPECT_GE(probes.io_uring().error, 0);
    EXPECT_EQ(probes.access("/", R_OK), 0);
    EXPECT_EQ(probes.access("/nonexistent/file", R_OK), ENOENT);
    EXPECT_EQ(descriptors(), before);
}

std::optional<wire::ReplyBody> a_marud(const wire::Request &request) {
    if (std::holds_alternative<wire::StatusRequest>(request.body)) {
        wire::StatusReply status;
        status.version = "9.8.7";
        status.pid = 1;
        status.fdstore = "none";
        return status;
    }
    if (std::get<wire::ListRequest>(request.body).kind == wire::ListKind::Sessions)
        return wire::ListReply{std::vector<wire::SessionRow>(1), 0};
    return wire::ListReply{std::vector<wire::PoolRow>(1), 0};
}

TEST(DoctorVerb, PrintsRemediesAndExitsByItsProblems) {
    FakeMarud marud(a_marud);
    const Outcome outcome =
        run_words({"doctor", "--socket", "/nonexistent/maru/marud.sock"}, marud.opener());
    EXPECT_EQ(outcome.err, "");
    EXPECT_NE(outcome.out.find("warning  marud  "), std::string::npos) << outcome.out;
    EXPECT_NE(outcome.out.find("See maru-host(7), marud(8).\n"), std::string::npos) << outcome.out;
    const bool problems = outcome.out.find("\n0 problems, ") == std::string::npos;
    EXPECT_EQ(outcome.exit, problems ? kFailed : kOk) << outcome.out;
    for (size_t at = 0; at < outcome.out.size();) {
        const size_t end = outcome.out.find('\n', at);
        EXPECT_LE(end - at, 100u) << outcome.out.substr(at, end - at);
        at = end + 1;
    }
}

TEST(DoctorVerb, WorksWithoutMarudAndInJson) {
    const Outcome outcome =
        run_words({"doctor", "--json", "--socket", "/dev/null"}, nobody_there());
    EXPECT_EQ(outcome.err, "");
    EXPECT_EQ(outcome.exit, kFailed);  // /dev/null is no socket
    EXPECT_EQ(outcome.out.rfind("{\"problems\":", 0), 0u) << outcome.out;
    EXPECT_NE(
        outcome.out.find("{\"check\":\"socket\",\"severity\":\"problem\",\"found\":\"'/dev/null'"
                         " is no socket\",\"remedy\":\""),
        std::string::npos)
        << outcome.out;
}

}  // namespace
}  // namespace maru::maructl
