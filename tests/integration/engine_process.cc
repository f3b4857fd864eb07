#include "tests/integration/engine_process.h"

#include <fcntl.h>
#include <maru/maru.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "tests/replay/pattern.h"

namespace maru::test {
namespace {

using replay::count_mismatches;
using replay::fill_pattern;
using replay::pattern_seed;

constexpr char kNamespace[] = "host-pool-test/1";

maru_digest digest_of(uint32_t number) {
    maru_digest digest{};
    std::memcpy(digest.bytes, &number, sizeof number);
    digest.bytes[31] = 9;
    return digest;
}

// Of the number alone: a reader does not know which engine wrote it.
uint64_t seed_of(uint32_t number) { return pattern_seed(digest_of(number), 1); }

struct Engine {
    maru_client *client = nullptr;
    maru_namespace *ns = nullptr;
    maru_pool *pool = nullptr;
    struct Held {
        maru_lease *lease;
        uint32_t number;
    };
    std::vector<Held> held;

    std::string open(const EngineOptions &given) {
        maru_client_options options{};
        options.size = sizeof options;
        options.socket_path = given.socket.c_str();
        options.engine = given.engine.c_str();
        options.timeout_ms = 15'000;
        options.connect_ms = 15'000;
        if (maru_client_open(&options, &client) < 0)
            return std::string("open: ") + maru_last_error();
        if (maru_namespace_open(client, kNamespace, &ns) < 0)
            return std::string("namespace: ") + maru_last_error();
        maru_schema schema{};
        schema.size = sizeof schema;
        schema.object_bytes = kEngineObjectBytes;
        schema.format = "pattern";
        if (maru_client_describe(client, ns, &schema) < 0)
            return std::string("describe: ") + maru_last_error();
        if (!given.pool)
            return "ready";
        maru_pool_options out{};
        out.size = sizeof out;
        out.capacity_bytes = given.pool_bytes;
        out.page_bytes = 32 << 10;
        out.populate_margin_mib = 1;
        out.scope = given.host ? MARU_SCOPE_HOST : MARU_SCOPE_WORKER;
        if (maru_pool_open(client, &out, &pool) < 0)
            return std::string("pool: ") + maru_last_error();
        return "ready";
    }

    std::string store(uint32_t first, uint32_t count) {
        uint32_t stored = 0, present = 0, refused = 0;
        int last = 0;
        for (uint32_t number = first; number < first + count; ++number) {
            maru_reservation run{};
            int code = maru_reserve(pool, kEngineObjectBytes, 1, &run);
            // The next segment is on its way, or is not granted.
            for (int tries = 0; code == -ENOSPC && tries < 300; ++tries) {
                struct maru_pool_info info {};
                info.size = sizeof info;
                maru_pool_info(pool, &info);
                if (!info.populating && tries > 3)
                    break;
                ::usleep(10'000);
                code = maru_reserve(pool, kEngineObjectBytes, 1, &run);
            }
            if (code < 0) {
                ++refused;
                last = code;
                continue;
            }
            fill_pattern(run.data, kEngineObjectBytes, seed_of(number));
            maru_key key{};
            key.digest = digest_of(number);
            int result = 0;
            maru_commit(ns, pool, &key, &run, 1, &result);
            stored += result == 0;
            present += result == -EEXIST;
            if (result != 0 && result != -EEXIST) {
                ++refused;
                last = result;
            }
        }
        std::ostringstream out;
        out << "stored " << stored << " present " << present << " refused " << refused << " "
            << (last ? maru_error_name(last) : "-");
        return out.str();
    }

    std::string hits(uint32_t count) {
        std::vector<maru_digest> digests;
        for (uint32_t i = 0; i < count; ++i)
            digests.push_back(digest_of(i));
        std::vector<uint8_t> bits((count + 7) / 8);
        int64_t got = maru_probe(ns, digests.data(), count, nullptr, 0, bits.data());
        if (got < 0)
            return std::string("probe: ") + maru_last_error();
        uint32_t found = 0;
        for (uint32_t i = 0; i < count; ++i)
            found += bits[i / 8] >> (i % 8) & 1;
        return "hits " + std::to_string(found);
    }

    std::string load(uint32_t count) {
        std::vector<maru_digest> digests;
        for (uint32_t i = 0; i < count; ++i)
            digests.push_back(digest_of(i));
        std::vector<maru_lease *> leases(count);
        int64_t got = maru_acquire(ns, digests.data(), count, nullptr, 0, leases.data());
        if (got < 0)
            return std::string("acquire: ") + maru_last_error();
        uint64_t wrong = 0;
        for (uint32_t i = 0; i < count; ++i)
            if (leases[i])
                wrong += maru_lease_length(leases[i]) != kEngineObjectBytes ||
                         count_mismatches(maru_lease_data(leases[i]), kEngineObjectBytes,
                                          seed_of(i)) != 0;
        maru_lease_release(leases.data(), leases.size());
        return "loaded " + std::to_string(got) + " wrong " + std::to_string(wrong);
    }

    std::string hold(uint32_t number) {
        maru_digest digest = digest_of(number);
        maru_lease *lease = nullptr;
        if (maru_acquire(ns, &digest, 1, nullptr, 0, &lease) != 1)
            return "miss";
        held.push_back({lease, number});
        return "held";
    }
    std::string check() {
        for (const Held &one : held)
            if (count_mismatches(maru_lease_data(one.lease), kEngineObjectBytes,
                                 seed_of(one.number)) != 0)
                return "wrong";
        return "right";
    }
    std::string drop() {
        for (const Held &one : held)
            if (int code = maru_lease_release(&one.lease, 1); code < 0)
                return maru_last_error();
        held.clear();
        return "dropped";
    }
    std::string retire(uint32_t first, uint32_t count) {
        std::vector<maru_key> keys(count);
        for (uint32_t i = 0; i < count; ++i)
            keys[i].digest = digest_of(first + i);
        return "retired " + std::to_string(maru_retire(ns, keys.data(), count, nullptr));
    }
    std::string info() {
        struct maru_pool_info info {};
        info.size = sizeof info;
        if (maru_pool_info(pool, &info) < 0)
            return maru_last_error();
        std::ostringstream out;
        out << "allocated " << info.allocated_bytes << " populated " << info.populated_bytes
            << " result " << info.populate_result << " scope " << info.scope;
        return out.str();
    }
    std::string close() {
        if (int code = maru_client_close(client); code < 0)
            return maru_last_error();
        client = nullptr;
        return "closed";
    }

    std::string obey(const std::string &line) {
        std::istringstream words(line);
        std::string verb;
        uint32_t first = 0, second = 0;
        words >> verb >> first >> second;
        if (verb == "store")
            return store(first, second);
        if (verb == "hits")
            return hits(first);
        if (verb == "load")
            return load(first);
        if (verb == "hold")
            return hold(first);
        if (verb == "check")
            return check();
        if (verb == "drop")
            return drop();
        if (verb == "retire")
            return retire(first, second);
        if (verb == "info")
            return info();
        if (verb == "close")
            return close();
        return "unknown: " + line;
    }
};

}  // namespace

EngineProcess::EngineProcess(const EngineOptions &options) {
    int down[2], up[2];
    if (::pipe2(down, O_CLOEXEC) < 0 || ::pipe2(up, O_CLOEXEC) < 0)
        throw std::runtime_error("pipe");
    const std::string uid = std::to_string(options.uid), bytes = std::to_string(options.pool_bytes);
    const char *argv[] = {"engine",
                          "--engine",
                          options.socket.c_str(),
                          options.engine.c_str(),
                          uid.c_str(),
                          bytes.c_str(),
                          options.host ? "host" : "worker",
                          options.pool ? "pool" : "reader",
                          nullptr};
    pid_ = ::fork();
    if (pid_ == 0) {
        ::dup2(down[0], 0);
        ::dup2(up[1], 1);
        ::execv("/proc/self/exe", const_cast<char **>(argv));
        ::_exit(127);
    }
    ::close(down[0]);
    ::close(up[1]);
    to_.reset(down[1]);
    from_.reset(up[0]);
    if (const std::string first = tell(""); first != "ready")
        throw std::runtime_error("engine '" + options.engine + "': " + first);
}

EngineProcess::~EngineProcess() { kill(); }

void EngineProcess::kill() {
    if (pid_ <= 0)
        return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
}

std::string EngineProcess::tell(const std::string &line) {
    const std::string text = line + "\n";
    if (!line.empty() && ::write(to_.get(), text.data(), text.size()) < 0)
        return "gone";
    std::string answer;
    for (char c; ::read(from_.get(), &c, 1) == 1;) {
        if (c == '\n')
            return answer;
        answer += c;
    }
    return "gone";
}

int engine_main(int argc, char **argv) {
    if (argc != 8 || std::strcmp(argv[1], "--engine") != 0)
        return -1;
    const auto uid = static_cast<uid_t>(std::atoi(argv[4]));
    if (uid != 0 && (::setgid(uid) < 0 || ::setuid(uid) < 0)) {
        std::cout << "setuid: " << std::strerror(errno) << std::endl;
        return 1;
    }
    EngineOptions options;
    options.socket = argv[2];
    options.engine = argv[3];
    options.pool_bytes = std::strtoull(argv[5], nullptr, 10);
    options.host = std::strcmp(argv[6], "host") == 0;
    options.pool = std::strcmp(argv[7], "pool") == 0;
    Engine engine;
    std::cout << engine.open(options) << std::endl;
    std::string line;
    while (std::getline(std::cin, line))
        std::cout << engine.obey(line) << std::endl;
    return 0;
}

}  // namespace maru::test
