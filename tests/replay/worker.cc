#include "tests/replay/worker.h"

#include <cstdio>
#include <cstdlib>
#include <list>
#include <memory>
#include <string_view>
#include <unordered_map>

#include "libmaru/base/clock.h"
#include "maru/maru.h"
#include "tests/replay/channel.h"
#include "tests/replay/pattern.h"

namespace maru::replay {
namespace {

constexpr size_t kStoreBatch = 32;
constexpr size_t kLoadBatch = 64;

struct DigestHash {
    size_t operator()(const maru_digest &digest) const {
        size_t word;
        std::memcpy(&word, digest.bytes, sizeof word);
        return word;
    }
};
struct DigestEqual {
    bool operator()(const maru_digest &a, const maru_digest &b) const {
        return std::memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
    }
};

// Which of our objects was used least recently: the policy of this engine, not of Maru.
class Recency {
  public:
    void touch(const maru_digest &digest) {
        if (auto it = places_.find(digest); it != places_.end())
            order_.erase(it->second);
        places_[digest] = order_.insert(order_.end(), digest);
    }
    // Up to `count` oldest ones, forgotten here.
    std::vector<maru_digest> take_oldest(size_t count) {
        std::vector<maru_digest> oldest;
        while (oldest.size() < count && !order_.empty()) {
            oldest.push_back(order_.front());
            places_.erase(order_.front());
            order_.pop_front();
        }
        return oldest;
    }

  private:
    std::list<maru_digest> order_;
    std::unordered_map<maru_digest, std::list<maru_digest>::iterator, DigestHash, DigestEqual>
        places_;
};

class Worker {
  public:
    explicit Worker(const Options &options) : options_(options), block_(options.block_bytes()) {}

    int open();
    JobResult run(const Job &job);
    int close();

  private:
    void load(const Job &job, JobResult &result);
    void store(const Job &job, size_t first, JobResult &result);
    size_t store_batch(const maru_digest *digests, size_t count, JobResult &result);
    bool make_room(JobResult &result);
    void note_error(JobResult &result, int64_t code) {
        result.errors++;
        result.last_error = static_cast<int32_t>(code);
    }

    const Options &options_;
    const uint64_t block_;
    maru_client *client_ = nullptr;
    maru_namespace *namespace_ = nullptr;
    maru_pool *pool_ = nullptr;
    std::unique_ptr<unsigned char[]> buffer_;  // stands for the engine's own memory
    Recency recency_;
};

int fail(const char *what, int code) {
    std::fprintf(stderr, "maru-replay: %s: %s (%s)\n", what, maru_last_error(),
                 maru_error_name(code));
    return 1;
}

int Worker::open() {
    std::string engine = options_.engine(options_.worker_index);
    maru_client_options client{};
    client.size = sizeof client;
    client.socket_path = options_.socket.c_str();
    client.engine = engine.c_str();
    client.name = "maru-replay";
    client.role = MARU_ROLE_WORKER;
    client.timeout_ms = 10000;
    client.connect_ms = 20000;
    // marud may be between two lives just now: a supervisor would start the engine again.
    int code = maru_client_open(&client, &client_);
    for (int64_t deadline = monotonic_ns() + 10'000'000'000;
         (code == -ECONNREFUSED || code == -ENOENT) && monotonic_ns() < deadline;) {
        timespec pause{0, 5'000'000};
        nanosleep(&pause, nullptr);
        code = maru_client_open(&client, &client_);
    }
    if (code < 0)
        return fail("open client", code);
    code = maru_namespace_open(client_, options_.namespace_text().c_str(), &namespace_);
    if (code < 0)
        return fail("open namespace", code);
    maru_schema schema{};
    schema.size = sizeof schema;
    schema.object_bytes = block_;
    schema.format = "replay-block/1";
    code = maru_client_describe(client_, namespace_, &schema);
    if (code < 0)
        return fail("describe", code);
    maru_pool_options pool{};
    pool.size = sizeof pool;
    pool.capacity_bytes = options_.pool_bytes / options_.workers;
    pool.page_bytes = options_.pool_page_bytes();
    pool.wait_populated = 1;  // the figures are those of a warm pool
    code = maru_pool_open(client_, &pool, &pool_);
    if (code < 0)
        return fail("open pool", code);
    buffer_.reset(new unsigned char[block_ * std::max(kLoadBatch, kStoreBatch)]);
    return 0;
}

JobResult Worker::run(const Job &job) {
    JobResult result;
    result.id = job.header.id;
    load(job, result);
    store(job, result.hit_blocks, result);
    return result;
}

void Worker::load(const Job &job, JobResult &result) {
    std::vector<maru_lease *> leases(kLoadBatch);
    for (size_t first = 0; first < job.header.prefix; first += kLoadBatch) {
        size_t count = std::min<size_t>(kLoadBatch, job.header.prefix - first);
        int64_t start = monotonic_ns();
        int64_t got = maru_acquire(namespace_, job.digests.data() + first, count, nullptr,
                                   MARU_PREFIX_ONLY, leases.data());
        int64_t acquired = monotonic_ns();
        if (got < 0)
            return note_error(result, got);
        for (int64_t i = 0; i < got; ++i)
            maru_copy_out(buffer_.get() + static_cast<uint64_t>(i) * block_,
                          maru_lease_data(leases[i]), block_);
        result.load_ns += static_cast<uint64_t>(monotonic_ns() - start);
        result.acquire_ns += static_cast<uint64_t>(acquired - start);
        result.load_bytes += static_cast<uint64_t>(got) * block_;
        for (int64_t i = 0; i < got; ++i) {
            const maru_digest &digest = job.digests[first + static_cast<size_t>(i)];
            uint64_t seed = pattern_seed(digest, maru_lease_generation(leases[i]));
            if (maru_lease_length(leases[i]) != block_)
                result.mismatches++;
            result.mismatches +=
                count_mismatches(buffer_.get() + static_cast<uint64_t>(i) * block_, block_, seed);
            result.verified_bytes += block_;
            recency_.touch(digest);
        }
        if (int code = maru_lease_release(leases.data(), static_cast<size_t>(got)); code < 0)
            note_error(result, code);
        result.hit_blocks += static_cast<uint32_t>(got);
        if (static_cast<size_t>(got) < count)
            return;
    }
}

void Worker::store(const Job &job, size_t first, JobResult &result) {
    size_t batch = kStoreBatch;
    while (first < job.digests.size()) {
        size_t count = std::min(batch, job.digests.size() - first);
        size_t done = store_batch(job.digests.data() + first, count, result);
        first += done;
        if (done == 0 && (batch /= 2) == 0) {
            // Full, and nothing could be retired: skip admission, keep the hits.
            result.skipped_blocks += static_cast<uint32_t>(job.digests.size() - first);
            return;
        }
    }
}

// How many of the digests are dealt with; 0: no room for so many.
size_t Worker::store_batch(const maru_digest *digests, size_t count, JobResult &result) {
    maru_reservation reservations[kStoreBatch];
    maru_key keys[kStoreBatch] = {};
    int results[kStoreBatch];
    int64_t start = monotonic_ns();
    int code = maru_reserve(pool_, block_, count, reservations);
    if (code == -ENOSPC && options_.evict && make_room(result))
        code = maru_reserve(pool_, block_, count, reservations);
    uint64_t reserve_ns = static_cast<uint64_t>(monotonic_ns() - start);
    if (code < 0) {
        if (code != -ENOSPC)
            note_error(result, code);
        return 0;
    }
    for (size_t i = 0; i < count; ++i) {
        keys[i].digest = digests[i];
        fill_pattern(buffer_.get() + i * block_, block_,
                     pattern_seed(digests[i], reservations[i].generation));
    }
    start = monotonic_ns();
    for (size_t i = 0; i < count; ++i)
        maru_copy_in(reservations[i].data, buffer_.get() + i * block_, block_);
    code = maru_commit(namespace_, pool_, keys, reservations, count, results);
    result.store_ns += static_cast<uint64_t>(monotonic_ns() - start) + reserve_ns;
    result.store_bytes += count * block_;
    for (size_t i = 0; i < count; ++i) {
        if (results[i] == 0 || results[i] == -EEXIST) {
            result.stored_blocks++;
            recency_.touch(digests[i]);
        } else if (results[i] == -EINPROGRESS) {
            result.unknown_blocks++;
            recency_.touch(digests[i]);
        } else {
            note_error(result, results[i]);
        }
    }
    return count;
}

// Retires a batch of the oldest and waits shortly for marud to let their pages go.
bool Worker::make_room(JobResult &result) {
    auto oldest = recency_.take_oldest(2 * kStoreBatch);
    if (oldest.empty())
        return false;
    std::vector<maru_key> keys(oldest.size());
    for (size_t i = 0; i < oldest.size(); ++i)
        keys[i].digest = oldest[i];
    struct maru_pool_info before {};
    before.size = sizeof before;
    maru_pool_info(pool_, &before);
    int64_t retired = maru_retire(namespace_, keys.data(), keys.size(), nullptr);
    if (retired < 0) {
        note_error(result, retired);
        return false;
    }
    result.retired_blocks += static_cast<uint32_t>(retired);
    // The acknowledgement runs in the background; the bound only matters when marud is away.
    for (int64_t deadline = monotonic_ns() + 50'000'000;
         retired > 0 && monotonic_ns() < deadline;) {
        struct maru_pool_info now {};
        now.size = sizeof now;
        maru_pool_info(pool_, &now);
        if (now.allocated_bytes < before.allocated_bytes)
            break;
        timespec pause{0, 20'000};
        nanosleep(&pause, nullptr);
    }
    return true;
}

int Worker::close() {
    if (int code = maru_pool_close(pool_, MARU_CLOSE_DRAINED); code < 0)
        return fail("close pool", code);
    if (int code = maru_client_close(client_); code < 0)
        return fail("close client", code);
    return 0;
}

}  // namespace

int run_worker(const Options &options) {
    int fd = std::atoi(options.worker_fd.c_str());
    Worker worker(options);
    if (int status = worker.open(); status != 0)
        return status;
    JobResult ready;  // id 0: the worker serves
    if (!write_all(fd, &ready, sizeof ready))
        return 1;
    for (Job job;;) {
        if (!read_all(fd, &job.header, sizeof job.header))
            return worker.close();
        job.digests.resize(job.header.blocks);
        if (!read_all(fd, job.digests.data(), job.digests.size() * sizeof(maru_digest)))
            return 1;
        JobResult result = worker.run(job);
        if (!write_all(fd, &result, sizeof result))
            return 1;
    }
}

}  // namespace maru::replay
