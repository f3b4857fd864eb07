// A machine made of files below a directory of its own, and of tries that all succeed until told else.
#pragma once

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "daemon/maructl/doctor/doctor.h"
#include "libmaru/base/unique_fd.h"

namespace maru::maructl::test {

class FakeHost {
  public:
    FakeHost() {
        std::string name = (std::filesystem::temp_directory_path() / "maru-doctor-XXXXXX").string();
        root = ::mkdtemp(name.data());
        for (auto member : {&Probes::seal_future_write, &Probes::memfd_noexec_seal, &Probes::pidfd,
                            &Probes::peer_pidfd, &Probes::pass_rights, &Probes::populate_write,
                            &Probes::collapse, &Probes::bind_memory})
            probes.*member = [] { return 0; };
        probes.io_uring = [] { return IoUringProbe{0, {}, true}; };
        probes.access = [this](const std::string &path, int) {
            if (auto closed = refused.find(path.substr(root.size())); closed != refused.end())
                return closed->second;
            return std::filesystem::exists(path) ? 0 : ENOENT;
        };
        // The host that Maru likes best.
        file("/proc/self/limits", limits("unlimited", "524288"));
        file("/proc/4711/limits", limits("unlimited", "524288"));
        file("/proc/meminfo",
             "MemAvailable: 1048576 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
             "CommitLimit: 2048 kB\nCommitted_AS: 1024 kB\n");
        file("/proc/sys/vm/overcommit_memory", "0\n");
        file("/sys/kernel/mm/transparent_hugepage/shmem_enabled",
             "always within_size [advise] never deny force\n");
        huge_pages("2048", 512, 512, 0);
        std::filesystem::create_directories(root + "/sys/devices/system/node/node0");
        marud.connected = marud.answered = true;
        marud.version = "1.0";
        marud.pid = 4711;
        marud.fdstore = "systemd";
        marud.host_limit_bytes = 1ull << 30;
        marud.host_reserved_bytes = 1ull << 29;
        socket_at("/run/maru/marud.sock");
    }
    FakeHost(const FakeHost &) = delete;
    ~FakeHost() { std::filesystem::remove_all(root); }

    static std::string limits(const std::string &locked, const std::string &files) {
        return "Limit                     Soft Limit           Hard Limit           Units     \n"
               "Max open files            " +
               files +
               "              524288               files     \n"
               "Max locked memory         " +
               locked + "            unlimited            bytes     \n";
    }
    void file(const std::string &path, const std::string &text) {
        std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
        std::ofstream(root + path) << text;
    }
    void link(const std::string &path, const std::string &to) {
        std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
        std::filesystem::create_symlink(to, root + path);
    }
    void huge_pages(const std::string &kib, int total, int free, int reserved) {
        const std::string folder = "/sys/kernel/mm/hugepages/hugepages-" + kib + "kB/";
        file(folder + "nr_hugepages", std::to_string(total) + "\n");
        file(folder + "free_hugepages", std::to_string(free) + "\n");
        file(folder + "resv_hugepages", std::to_string(reserved) + "\n");
    }
    void socket_at(const std::string &path) {
        std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
        sockaddr_un name = {};
        name.sun_family = AF_UNIX;
        std::strncpy(name.sun_path, (root + path).c_str(), sizeof name.sun_path - 1);
        const UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
        if (::bind(fd.get(), reinterpret_cast<sockaddr *>(&name), sizeof name) != 0)
            std::abort();
    }

    Findings examine() const {
        const Host host(probes, root);
        return maructl::examine({host, marud, sockets, "1.0"});
    }
    // The one finding of a check; several or none fail the test that looks at them.
    Finding find(const std::string &check) const {
        std::vector<Finding> found;
        for (const Finding &finding : examine().all())
            if (finding.check == check)
                found.push_back(finding);
        return found.size() == 1 ? found[0]
                                 : Finding{std::to_string(found.size()) + " findings of " + check,
                                           Severity::Problem, "", "", ""};
    }

    std::string root;
    Probes probes;
    MarudFacts marud;
    std::vector<std::string> sockets{"/run/maru/marud.sock"};
    std::map<std::string, int> refused;  // path -> what access() gives
};

}  // namespace maru::maructl::test
