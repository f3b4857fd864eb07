// The names of things outside marud, and what a session leaves for the next life of marud.
//
// Connections and processes are numbered by the shell, never reused, so that nothing here depends
// on a descriptor or a pid: the kernel gives those to somebody else as soon as they are free.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "libmaru/wire/messages.h"

namespace maru {

using TimeNs = int64_t;
using ConnectionId = uint64_t;  // given by the shell, never reused
using ProcessId64 = uint64_t;   // given by the shell: one number per pidfd identity, never reused

// Who is at the other end, as the kernel says.
struct Peer {
    uint32_t uid = UINT32_MAX;
    uint32_t gid = UINT32_MAX;
    uint32_t pid = 0;         // 0: not visible from here (a container's namespace)
    uint64_t start_time = 0;  // of the process, from /proc/PID/stat; 0 when not visible
    ProcessId64 process = 0;
    bool admin = false;   // uid 0, marud's uid, or in admin_group
    std::string command;  // comm, for people; "-" when not visible
};

struct SegmentRef {
    wire::Id pool = 0;
    uint32_t segment = 0;
    auto operator<=>(const SegmentRef &) const = default;
};

// Which file a descriptor is: st_dev and st_ino. Zero: not known (a record without it).
struct SegmentIdentity {
    uint64_t device = 0;
    uint64_t inode = 0;
    bool operator==(const SegmentIdentity &) const = default;
};

// What a restarted marud must know of a session: written before the reply that promises it. A
// record of another boot is dropped by the shell, which adds the boot id when it writes. The new
// life's epoch must differ from that of every id in every record.
struct SessionRecord {
    struct Segment {
        bool created = false;
        bool sealed = false;  // FUTURE_WRITE: the worker had mapped it, commits might lie in it
        bool huge = false;
        SegmentIdentity identity;
    };
    struct Pool {
        wire::Id pool = 0;
        wire::Medium medium = wire::Medium::Cpu;
        wire::Scope scope = wire::Scope::Worker;
        uint64_t capacity_bytes = 0;
        uint64_t segment_bytes = 0;
        uint32_t page_bytes = 0;
        wire::HugePages huge_pages = wire::HugePages::Off;
        wire::Numa numa = wire::Numa::Off;
        int32_t numa_node = -1;
        uint64_t asked_bytes = 0;  // capacity as the request said it, for its retry
        uint64_t request_key = 0;  // of OpenPool: a retry finds this pool in the next life too
        uint64_t first_generation = 0;
        std::vector<Segment> segments;  // segment_count of them
    };
    uint32_t epoch = 0;                    // of the life that wrote it
    std::array<uint8_t, 32> token_hash{};  // SHA-256 of the token: the token itself is never stored
    wire::Id session = 0;  // the record's name; kept by the session over every restart
    uint32_t uid = 0;
    uint32_t pid = 0;
    uint64_t start_time = 0;
    wire::Role role = wire::Role::Worker;
    std::string engine;
    std::string client_name;
    std::string command;
    bool fenced = false;  // lost its engine for good; only its proof is awaited
    // It has asked for a segment of somebody else's, and may be reading it when this is restored. A
    // record that does not say is of one that may.
    bool reads_shared = true;
    std::vector<Pool> pools;
};

}  // namespace maru
