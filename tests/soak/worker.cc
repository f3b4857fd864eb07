// An engine's worker: stores, loads and verifies, retires, and now and then begins a new session.
#include <maru/maru.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "tests/replay/pattern.h"
#include "tests/soak/actors.h"

namespace maru::soak {

std::string engine_name(unsigned index) { return "soak-" + std::to_string(index); }

bool told_to_end() {
    pollfd in{STDIN_FILENO, POLLIN, 0};
    return ::poll(&in, 1, 0) > 0;
}

namespace {

constexpr const char *kNamespace = "soak/1";
constexpr size_t kBatch = 16;

// What a busy marud or one between two lives may answer; anything else is a failure of the soak.
bool passing(int64_t code) { return code == -ENOTCONN || code == -ETIMEDOUT || code == -EAGAIN; }

class Worker {
  public:
    explicit Worker(const Actor &actor) : actor_(actor), random_(actor.seed) {}
    ~Worker() {
        if (client_)
            maru_client_close(client_);
    }

    bool open() {
        maru_client_options options{};
        options.size = sizeof options;
        options.socket_path = actor_.socket.c_str();
        std::string engine = engine_name(actor_.index);
        options.engine = engine.c_str();
        options.timeout_ms = 20'000;
        options.connect_ms = 60'000;
        if (!check("open", maru_client_open(&options, &client_)))
            return false;
        maru_schema schema{};
        schema.size = sizeof schema;
        schema.object_bytes = kObjectBytes;
        schema.format = "pattern";
        maru_pool_options pool{};
        pool.size = sizeof pool;
        pool.capacity_bytes = kPoolBytes;
        pool.page_bytes = 16384;
        pool.populate_margin_mib = 1;
        if (!check("namespace", maru_namespace_open(client_, kNamespace, &ns_)) ||
            !check("describe", maru_client_describe(client_, ns_, &schema)) ||
            !check("pool", maru_pool_open(client_, &pool, &pool_)))
            return false;
        digests_.resize(kChunks);
        std::vector<uint32_t> tokens(kChunks);
        for (uint32_t i = 0; i < kChunks; ++i)
            tokens[i] = i * 7 + actor_.index;
        maru_prefix_digests(kNamespace, tokens.data(), kChunks, 1, nullptr, digests_.data());
        return true;
    }

    // One turn of work; false: something that must not happen did, and was told.
    bool turn() {
        size_t first = random_() % (kChunks - kBatch);
        return store(first) && load(random_() % (kChunks - kBatch));
    }

    bool close() {
        int code = maru_client_close(client_);
        client_ = nullptr;
        return check("close", code);
    }

  private:
    bool check(const char *what, int64_t code) {
        if (code >= 0)
            return true;
        std::fprintf(stderr, "worker %u: %s: %s, %s\n", actor_.index, what,
                     maru_error_name(static_cast<int>(code)), maru_last_error());
        return false;
    }

    bool store(size_t first) {
        maru_reservation runs[kBatch];
        int code = maru_reserve(pool_, kObjectBytes, kBatch, runs);
        if (code == -ENOSPC)
            return retire();
        if (!check("reserve", code))
            return false;
        maru_key keys[kBatch] = {};
        for (size_t i = 0; i < kBatch; ++i) {
            keys[i].digest = digests_[first + i];
            replay::fill_pattern(runs[i].data, kObjectBytes,
                                 replay::pattern_seed(keys[i].digest, runs[i].generation));
        }
        int results[kBatch];
        maru_commit(ns_, pool_, keys, runs, kBatch, results);
        for (size_t i = 0; i < kBatch; ++i) {
            if (results[i] != 0 && results[i] != -EEXIST && results[i] != -EINPROGRESS &&
                !passing(results[i]))
                return check("commit", results[i]);
        }
        order_.push_back(first);
        return true;
    }

    // The oldest stored batches make room.
    bool retire() {
        for (int n = 0; n < 4 && !order_.empty(); ++n) {
            maru_key keys[kBatch] = {};
            for (size_t i = 0; i < kBatch; ++i)
                keys[i].digest = digests_[order_.front() + i];
            order_.pop_front();
            int64_t code = maru_retire(ns_, keys, kBatch, nullptr);
            if (!passing(code) && !check("retire", code))
                return false;
        }
        ::usleep(5'000);  // the reclaim comes back through marud
        return true;
    }

    bool load(size_t first) {
        maru_lease *leases[kBatch];
        int64_t got = maru_acquire(ns_, &digests_[first], kBatch, nullptr, 0, leases);
        if (passing(got))
            return true;
        if (!check("acquire", got))
            return false;
        uint64_t wrong = 0;
        for (size_t i = 0; i < kBatch; ++i) {
            if (!leases[i])
                continue;
            wrong += maru_lease_length(leases[i]) != kObjectBytes;
            wrong += replay::count_mismatches(
                maru_lease_data(leases[i]), kObjectBytes,
                replay::pattern_seed(digests_[first + i], maru_lease_generation(leases[i])));
        }
        if (wrong) {
            std::fprintf(stderr, "worker %u: %llu wrong words\n", actor_.index,
                         static_cast<unsigned long long>(wrong));
            return false;
        }
        return check("release", maru_lease_release(leases, kBatch));
    }

    const Actor &actor_;
    std::mt19937_64 random_;
    maru_client *client_ = nullptr;
    maru_namespace *ns_ = nullptr;
    maru_pool *pool_ = nullptr;
    std::vector<maru_digest> digests_;
    std::deque<size_t> order_;
};

}  // namespace

int run_worker(const Actor &actor) {
    std::mt19937_64 random(actor.seed ^ 0x50a4);
    while (!told_to_end()) {
        Worker worker(actor);
        if (!worker.open())
            return 1;
        // A session of some hundred to some thousand turns, then an orderly end and the next.
        for (uint64_t turns = 200 + random() % 4000; turns && !told_to_end(); --turns) {
            if (!worker.turn())
                return 1;
            ::usleep(static_cast<useconds_t>(random() % 2000));
        }
        if (!worker.close())
            return 1;
    }
    return 0;
}

int run_scheduler(const Actor &actor) {
    std::mt19937_64 random(actor.seed);
    std::string engine = engine_name(actor.index);
    std::vector<uint32_t> tokens(kChunks);
    for (uint32_t i = 0; i < kChunks; ++i)
        tokens[i] = i * 7 + actor.index;
    std::vector<maru_digest> digests(kChunks);
    maru_prefix_digests(kNamespace, tokens.data(), kChunks, 1, nullptr, digests.data());
    while (!told_to_end()) {
        maru_client_options options{};
        options.size = sizeof options;
        options.socket_path = actor.socket.c_str();
        options.engine = engine.c_str();
        options.role = MARU_ROLE_SCHEDULER;
        options.timeout_ms = 20'000;
        options.connect_ms = 60'000;
        maru_client *client = nullptr;
        maru_namespace *ns = nullptr;
        int64_t code = maru_client_open(&options, &client);
        if (code == 0)
            code = maru_namespace_open(client, kNamespace, &ns);
        for (uint64_t turns = 500 + random() % 5000; code >= 0 && turns && !told_to_end();
             --turns) {
            size_t first = random() % (kChunks - 256);
            code = maru_probe(ns, &digests[first], 1 + random() % 255, nullptr, 0, nullptr);
            if (passing(code))
                code = 0;
            ::usleep(static_cast<useconds_t>(random() % 2000));
        }
        if (code >= 0)
            code = maru_client_close(client);
        if (code < 0) {
            std::fprintf(stderr, "scheduler %u: %s, %s\n", actor.index,
                         maru_error_name(static_cast<int>(code)), maru_last_error());
            return 1;
        }
    }
    return 0;
}

}  // namespace maru::soak
