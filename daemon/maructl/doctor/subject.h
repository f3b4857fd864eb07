// What every check gets, and the checks. One file per subject; doctor.cc has their order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/maructl/doctor/finding.h"
#include "daemon/maructl/doctor/host.h"

namespace maru::maructl {

struct WorkerFacts {
    uint32_t pid = 0;
    std::string engine;
    uint64_t capacity_bytes = 0;   // granted to its pools
    uint64_t populated_bytes = 0;  // memory that stands behind them already
};

// What marud told, if one answered. Without it every check has to do with the host alone.
struct MarudFacts {
    bool connected = false;  // somebody listens
    bool answered = false;   // and it is marud, which serves us
    std::string error;       // why not
    std::string version;
    uint32_t pid = 0;
    std::string fdstore;
    uint64_t host_limit_bytes = 0, host_reserved_bytes = 0;
    std::vector<WorkerFacts> workers;  // of the caller; of all users for an administrator
};

struct Subject {
    const Host &host;
    const MarudFacts &marud;
    std::vector<std::string> sockets;  // the places a client looks at, in order
    std::string version;               // of maructl
};

using Check = void (*)(const Subject &, Findings &);

void check_socket(const Subject &, Findings &);
void check_runtime_directory(const Subject &, Findings &);
void check_fd_store(const Subject &, Findings &);
void check_kernel(const Subject &, Findings &);
void check_shmem_thp(const Subject &, Findings &);
void check_huge_pages(const Subject &, Findings &);
void check_numa(const Subject &, Findings &);
void check_memory(const Subject &, Findings &);
void check_limits(const Subject &, Findings &);
void check_io_uring(const Subject &, Findings &);
void check_dax(const Subject &, Findings &);

std::string errno_text(int code);  // "EPERM (Operation not permitted)"

}  // namespace maru::maructl
