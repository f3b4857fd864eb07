#include "tests/bench/pin.h"

#include <fstream>
#include <vector>

namespace maru::bench {

namespace {

struct Processors {
    cpu_set_t allowed;
    int client = kAnywhere, server = kAnywhere;
    bool same_core = false;

    Processors() {
        CPU_ZERO(&allowed);
        ::sched_getaffinity(0, sizeof allowed, &allowed);
        std::vector<int> cpus;
        for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
            if (CPU_ISSET(cpu, &allowed))
                cpus.push_back(cpu);
        if (cpus.size() < 2)
            return;
        client = cpus[0];
        server = cpus[1];
        same_core = core_of(client) == core_of(server);
        for (size_t i = 2; same_core && i < cpus.size(); ++i)
            if (core_of(cpus[i]) != core_of(client)) {
                server = cpus[i];
                same_core = false;
            }
    }
    static std::string core_of(int cpu) {
        std::ifstream in("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                         "/topology/thread_siblings_list");
        std::string text;
        std::getline(in, text);
        return text.empty() ? std::to_string(cpu) : text;
    }
};

const Processors &processors() {
    static const Processors found;
    return found;
}

}  // namespace

int client_cpu() { return processors().client; }
int server_cpu() { return processors().server; }

std::string pinning_text() {
    const Processors &p = processors();
    if (p.client == kAnywhere)
        return "one processor only: nothing is pinned, and figures with spinning mean nothing";
    return "clients pinned to processor " + std::to_string(p.client) +
           ", marud, floors' and peers' other ends to " + std::to_string(p.server) +
           (p.same_core ? " (threads of one core)" : "");
}

void pin(pid_t thread, int cpu) {
    cpu_set_t set = processors().allowed;
    if (cpu != kAnywhere) {
        CPU_ZERO(&set);
        CPU_SET(cpu, &set);
    }
    ::sched_setaffinity(thread, sizeof set, &set);
}

}  // namespace maru::bench
