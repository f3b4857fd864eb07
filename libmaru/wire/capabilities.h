// Capability strings of hello, with what each one promises.
//
// A string is offered only when all of it works. A client requires what it cannot do without; an
// unknown one is simply absent from the reply.
#pragma once

#include <string_view>

namespace maru::wire {

struct Capability {
    std::string_view name;
    std::string_view meaning;
    bool offered;  // by this version of marud
};

inline constexpr std::string_view kCpuStorage = "cpu_storage_v1";
inline constexpr std::string_view kMixedStorage = "mixed_storage_v1";
inline constexpr std::string_view kSharedStorage = "shared_storage_v1";
inline constexpr std::string_view kL2Storage = "l2_storage_v1";
inline constexpr std::string_view kEngineWorker = "engine_worker_v1";

inline constexpr Capability kCapabilities[] = {
    {kCpuStorage, "private CPU pools: commit, probe, acquire, retire", true},
    {kMixedStorage, "private CPU pools with CXL pools behind them", false},
    {kSharedStorage, "CPU pools for all sessions of a uid, which outlive their worker", true},
    {kL2Storage, "objects on SSD, promoted into an L1 pool on demand", false},
    {kEngineWorker, "a scheduler may ask for its engine's worker and namespace", true},
};

constexpr const Capability *find_capability(std::string_view name) {
    for (const Capability &capability : kCapabilities)
        if (capability.name == name)
            return &capability;
    return nullptr;
}

}  // namespace maru::wire
