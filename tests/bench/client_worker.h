// One session with one pool of objects of one size, through the public C ABI only.
//
// Every call's result is checked: a benchmark of failures would be a fast one. What is timed are the
// caller's own calls; what has to happen around them (new keys, pages coming back) is done before and after.
#pragma once

#include <maru/maru.h>

#include <cstdint>
#include <string>
#include <vector>

namespace maru::bench {

inline constexpr size_t kBatch = 32;

// Throw std::runtime_error with the library's message.
int64_t must(int64_t result, const char *call);
void must_be(int64_t result, size_t expected, const char *call);

struct WorkerSetup {
    std::string socket_path;
    std::string engine;
    uint64_t object_bytes = 4096;
    size_t objects = 0;  // 0: no pool
    unsigned spin_us = 0;
    uint32_t role = MARU_ROLE_WORKER;
    uint32_t scope = MARU_SCOPE_WORKER;
    std::string text = {};  // of the namespace; "": of its own
    bool populated = true;
};

class Worker {
  public:
    explicit Worker(WorkerSetup setup);
    // Closes the client as a program does that ends in order.
    ~Worker();
    Worker(const Worker &) = delete;
    Worker &operator=(const Worker &) = delete;

    // The keys [first, first + count) of this namespace: the same in every process.
    std::vector<maru_key> keys(uint32_t first, size_t count) const;
    std::vector<maru_digest> digests(uint32_t first, size_t count) const;
    // Keys that no earlier call of this worker got.
    std::vector<maru_key> new_keys(size_t count);

    std::vector<maru_reservation> reserve(size_t count);
    void abort(const std::vector<maru_reservation> &runs);
    void commit(const maru_key *keys, const maru_reservation *runs, size_t count);
    void copy_in(const std::vector<maru_reservation> &runs, const uint8_t *source);
    void store(const std::vector<maru_key> &keys, const uint8_t *source);
    // Objects [first, first + count), each filled with `source`'s bytes, in batches.
    void fill(uint32_t first, size_t count, const uint8_t *source);
    // Gives the pages back and waits until they are there again.
    void retire(const std::vector<maru_key> &keys);
    // A few probes, so that what follows does not begin on sleeping processors.
    void warm();

    maru_client *client() { return client_; }
    maru_namespace *ns() { return ns_; }
    maru_pool *pool() { return pool_; }
    uint64_t object_bytes() const { return setup_.object_bytes; }
    size_t batch_bytes() const { return kBatch * setup_.object_bytes; }

  private:
    void open_pool();

    const WorkerSetup setup_;
    std::string text_;
    uint32_t next_key_ = 1u << 24;  // above what fill() is asked for
    maru_client *client_ = nullptr;
    maru_namespace *ns_ = nullptr;
    maru_pool *pool_ = nullptr;
};

// A queue for calls that do not wait, one at a time in flight.
class Pipeline {
  public:
    explicit Pipeline(Worker &worker);
    ~Pipeline();
    Pipeline(const Pipeline &) = delete;
    Pipeline &operator=(const Pipeline &) = delete;
    maru_queue *queue() { return queue_; }
    // Waits for the one in flight; its result.
    int64_t reap();

  private:
    maru_queue *queue_ = nullptr;
};

}  // namespace maru::bench
