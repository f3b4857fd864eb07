// The same calls from Python through ctypes, beside those from C in the same run, and the digests of a prompt
// beside the raw hash. Python runs in a process of its own, at the client's place.
#include <fcntl.h>
#include <maru/maru.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "tests/bench/cases/cases.h"
#include "tests/bench/client_worker.h"
#include "tests/bench/marud_process.h"

namespace maru::bench {

namespace {

constexpr size_t kKeys = 4096;
constexpr size_t kTokens = 100000, kChunk = 256;

// python_cases.py: one line "NAME TURNS" in, one line with a figure, or "! why", out.
class Python {
  public:
    Python(const std::string &script, const std::string &blocking, const std::string &spinning) {
        int to[2], from[2];
        if (::pipe2(to, O_CLOEXEC) != 0 || ::pipe2(from, O_CLOEXEC) != 0)
            throw std::runtime_error("pipe");
        child_ = ::fork();
        if (child_ == 0) {
            pin(0, client_cpu());
            ::dup2(to[0], STDIN_FILENO);
            ::dup2(from[1], STDOUT_FILENO);
            ::execlp("python3", "python3", script.c_str(), blocking.c_str(), spinning.c_str(),
                     static_cast<char *>(nullptr));
            ::_exit(127);
        }
        ::close(to[0]);
        ::close(from[1]);
        to_ = ::fdopen(to[1], "w");
        from_ = ::fdopen(from[0], "r");
        if (line() != "ready")
            throw std::runtime_error("python_cases.py did not start");
    }
    ~Python() {
        std::fclose(to_);
        std::fclose(from_);
        ::waitpid(child_, nullptr, 0);
    }
    Python(const Python &) = delete;
    Python &operator=(const Python &) = delete;

    double ask(const std::string &name, int turns) {
        std::fprintf(to_, "%s %d\n", name.c_str(), turns);
        std::fflush(to_);
        const std::string answer = line();
        if (answer.empty() || answer[0] == '!')
            throw std::runtime_error("python_cases.py: " + answer);
        return std::strtod(answer.c_str(), nullptr);
    }

  private:
    std::string line() {
        char text[1024] = {};
        if (!std::fgets(text, sizeof text, from_))
            throw std::runtime_error("python_cases.py has ended");
        std::string got = text;
        got.erase(got.find_last_not_of("\r\n") + 1);
        return got;
    }
    pid_t child_ = -1;
    std::FILE *to_ = nullptr, *from_ = nullptr;
};

struct Both {
    PinnedClient pinned;
    MarudProcess blocking, spinning;
    Worker c_blocking, c_spinning;
    std::vector<maru_digest> digests;
    Python python;

    explicit Both(const Plan &plan)
        : blocking({plan.marud, 0, server_cpu(), "64G", ""}),
          spinning({plan.marud, kSpinUs, server_cpu(), "64G", ""}),
          c_blocking({blocking.socket_path(), "c", 4096, kKeys, 0}),
          c_spinning({spinning.socket_path(), "c", 4096, kKeys, kSpinUs}),
          python(plan.python + "/python_cases.py", blocking.socket_path(), spinning.socket_path()) {
        const std::vector<uint8_t> bytes(c_blocking.batch_bytes(), 3);
        for (Worker *worker : {&c_blocking, &c_spinning})
            worker->fill(0, kKeys, bytes.data());
        for (size_t first = 0; first < kKeys; first += kBatch)
            for (const maru_digest &digest :
                 c_blocking.digests(static_cast<uint32_t>(first), kBatch))
                digests.push_back(digest);
    }
    double c_probe_us(Worker &worker, size_t keys, int turns) const {
        std::vector<double> times;
        worker.warm();
        for (int i = 0; i < turns; ++i) {
            uint8_t bitmap[kKeys / 8];
            const uint64_t begin = now_ns();
            const int64_t hits = maru_probe(worker.ns(), digests.data(), keys, nullptr, 0, bitmap);
            times.push_back(us_since(begin));
            must_be(hits, keys, "maru_probe");
        }
        return median(times);
    }
};

double c_digests_us(int turns) {
    static const std::vector<uint32_t> tokens(kTokens, 42);
    std::vector<maru_digest> out(kTokens / kChunk);
    std::vector<double> times;
    for (int i = 0; i < turns; ++i) {
        const uint64_t begin = now_ns();
        must_be(
            maru_prefix_digests("bench", tokens.data(), tokens.size(), kChunk, nullptr, out.data()),
            out.size(), "maru_prefix_digests");
        times.push_back(us_since(begin));
    }
    return median(times);
}

void fill_group(Group &group, const Plan &plan) {
    auto both = std::make_shared<Both>(plan);
    group.keep(both);
    const int turns = plan.turns(300), few = plan.turns(30);
    const std::string c_block = "floor: probe from C, 1 key, blocking",
                      c_spin = "floor: probe from C, 1 key, spinning", raw = "floor: raw SHA-256",
                      array = "digests of 100k tokens, Python array";
    const auto python = [=](const std::string &name, int count) {
        return [=] { return both->python.ask(name, count); };
    };
    group.add(
        {c_block, "us", "", [=] { return both->c_probe_us(both->c_blocking, 1, turns); }, {}});
    group.add({"probe from Python, 1 key, blocking",
               "us",
               c_block,
               python("probe-1-blocking", turns),
               {at_most(1.1, c_block)}});
    if (client_cpu() == kAnywhere) {
        group.add_missing("probe from Python, 1 key, spinning", "us",
                          "one processor only: two ends cannot spin", {at_most(1)});
    } else {
        group.add(
            {c_spin, "us", "", [=] { return both->c_probe_us(both->c_spinning, 1, turns); }, {}});
        group.add({"probe from Python, 1 key, spinning",
                   "us",
                   c_spin,
                   python("probe-1-spinning", turns),
                   {at_most(1, c_spin, 3)}});
    }
    group.add({"probe from Python, 4096 keys, blocking",
               "us",
               "",
               python("probe-4096-blocking", few),
               {at_most(500)}});
    group.add({raw, "us", "", [=] { return raw_hash_us(kTokens * 4, few); }, {}});
    group.add({"digests of 100k tokens, C", "us", raw, [=] { return c_digests_us(few); }, {}});
    group.add({array, "us", raw, python("digests-array", few), {at_most(2, raw)}});
    group.add({"digests of 100k tokens, Python list",
               "us",
               array,
               python("digests-list", few),
               {at_most(1, array, 600)}});
}

}  // namespace

void add_python(Suite &suite, const Plan &plan) {
    suite.add("Python and digests", [=](Group &group) { fill_group(group, plan); });
}

}  // namespace maru::bench
