// Runs a fixed number of each hot operation against a marud, for guard.py, which counts instructions.
//
// Whatever is asked for, everything else is the same: the same keys are made, the same pool is opened. So
// the difference of two runs is what the operations cost marud. This end's own instructions are counted
// operation by operation, and written under its name. At the end this process waits for the end of its
// input, so that marud can be stopped before it: what marud does about a dead worker depends on how much
// that had stored.
#include <maru/maru.h>
#include <valgrind/callgrind.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "tests/bench/client_worker.h"

namespace {

using namespace maru::bench;

constexpr size_t kResident = 2048, kLeases = 1024, kCommit = 256;
constexpr size_t kMostCommits = 32, kMostStores = 128;
constexpr uint64_t kObject = 4096;

// "name=times" of the arguments; a name that is not there is 0 times.
std::map<std::string, size_t> orders(int argc, char **argv) {
    std::map<std::string, size_t> asked;
    for (int i = 2; i < argc; ++i) {
        const std::string text = argv[i];
        const size_t at = text.find('=');
        if (at != std::string::npos)
            asked[text.substr(0, at)] = std::strtoul(text.c_str() + at + 1, nullptr, 10);
    }
    return asked;
}

void run(const std::string &socket, std::map<std::string, size_t> asked) {
    WorkerSetup setup;
    setup.socket_path = socket;
    setup.engine = "guard";
    setup.object_bytes = kObject;
    setup.objects = kResident + kMostCommits * kCommit + kMostStores * kBatch;
    Worker worker(setup);
    const std::vector<uint8_t> bytes(kBatch * kObject, 3);
    worker.fill(0, kResident, bytes.data());
    std::vector<maru_digest> digests;
    for (uint32_t first = 0; first < kResident; first += kBatch)
        for (const maru_digest &digest : worker.digests(first, kBatch))
            digests.push_back(digest);
    const auto commit_keys = worker.new_keys(kMostCommits * kCommit);
    const auto commit_runs = worker.reserve(kMostCommits * kCommit);
    const auto store_keys = worker.new_keys(kMostStores * kBatch);
    std::vector<const void *> sources;
    for (size_t i = 0; i < kBatch; ++i)
        sources.push_back(bytes.data() + i * kObject);
    std::vector<maru_lease *> leases(kLeases);
    std::vector<uint8_t> bitmap(kResident / 8);
    std::vector<int> results(kCommit);

    const auto counted = [&](const char *name, const auto &operation) {
        worker.warm();
        CALLGRIND_ZERO_STATS;
        for (size_t i = 0; i < asked[name]; ++i)
            operation(i);
        CALLGRIND_DUMP_STATS_AT(name);
    };
    const auto probe = [&](size_t keys) {
        must_be(maru_probe(worker.ns(), digests.data(), keys, nullptr, 0, bitmap.data()), keys,
                "maru_probe");
    };
    counted("probe-1", [&](size_t) { probe(1); });
    counted("probe-2048", [&](size_t) { probe(kResident); });
    counted("acquire-release-1024", [&](size_t) {
        must_be(maru_acquire(worker.ns(), digests.data(), kLeases, nullptr, 0, leases.data()),
                kLeases, "maru_acquire");
        must(maru_lease_release(leases.data(), kLeases), "maru_lease_release");
        probe(1);  // reads the answer of the release
    });
    counted("commit-256", [&](size_t i) {
        must(maru_commit(worker.ns(), worker.pool(), &commit_keys[i * kCommit],
                         &commit_runs[i * kCommit], kCommit, results.data()),
             "maru_commit");
    });
    counted("store-32", [&](size_t i) {
        must_be(maru_store(worker.ns(), worker.pool(), &store_keys[i * kBatch], sources.data(),
                           kObject, kBatch, nullptr),
                kBatch, "maru_store");
    });
    std::puts("done");
    std::fflush(stdout);
    while (std::getchar() != EOF) {
    }
    std::_Exit(0);
}

}  // namespace

int main(int argc, char **argv) {
    if (argc < 2) {
        std::fprintf(stderr, "Usage: guard-program SOCKET [NAME=TIMES]...\n");
        return 2;
    }
    try {
        run(argv[1], orders(argc, argv));
    } catch (const std::exception &error) {
        std::fprintf(stderr, "guard-program: %s\n", error.what());
    }
    return 1;
}
