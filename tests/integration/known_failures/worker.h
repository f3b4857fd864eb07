// Clients of the public C interface, for the known failures: every byte of every object follows from
// its number and its generation, so that any mix-up is seen.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "maru/maru.h"
#include "tests/integration/marud_fixture.h"
#include "tests/integration/status_query.h"

namespace maru::test {

constexpr uint64_t kPage = 4096;
constexpr char kText[] = "known-failures/1";

maru_digest digest_of(uint32_t number);
inline maru_key key_of(uint32_t number) { return {digest_of(number), 0, 0}; }

struct WorkerOptions {
    std::string socket;
    std::string engine = "engine";
    uint32_t timeout_ms = 10'000;
    uint64_t pool_bytes = 1 << 20;  // 0: no pool
    uint64_t page_bytes = kPage;
    uint64_t object_bytes = kPage;
    std::string text = kText;
};

// One client with one namespace and one populated pool.
class Worker {
  public:
    explicit Worker(WorkerOptions options);
    ~Worker();
    Worker(const Worker &) = delete;
    Worker &operator=(const Worker &) = delete;

    int store(uint32_t number);  // result of the commit, or of the reservation
    int fill(uint32_t number, maru_reservation *ret_run);  // reserve and write, no commit
    int commit(uint32_t number, const maru_reservation &run);
    int store_until_full(uint32_t first);  // how many were stored before -ENOSPC
    int64_t probe(uint32_t number);
    maru_lease *acquire(uint32_t number);  // nullptr: a miss
    std::vector<maru_lease *> acquire_all(uint32_t first, uint32_t count);
    int release(maru_lease *lease);
    int retire(uint32_t number);                                 // the item's result
    bool shows(const maru_lease *lease, uint32_t number) const;  // exactly its bytes

    struct maru_pool_info pool_info();
    struct maru_client_info client_info();
    int close_pool(uint32_t mode = MARU_CLOSE_DRAINED);
    int close();  // the client

    maru_client *client = nullptr;
    maru_namespace *ns = nullptr;
    maru_pool *pool = nullptr;
    const WorkerOptions options;
};

// Waits, looking often, for what another thread or process brings about.
bool eventually(const std::function<bool()> &holds, int timeout_ms = 10'000);

inline int64_t since_ms(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                                 begin)
        .count();
}
inline std::chrono::steady_clock::time_point now() { return std::chrono::steady_clock::now(); }
inline void pause_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

}  // namespace maru::test
