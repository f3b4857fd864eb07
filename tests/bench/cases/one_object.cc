// One object that another process stored, read by this one: a pool of scope host, a round trip, a copy.
//
// Beside it: a round trip plus the copy, in the same wait mode; and what a user would pick instead, Redis
// over a Unix socket and a file on tmpfs. Objects rotate, so that none is in a cache.
#include <fcntl.h>
#include <maru/maru.h>
#include <unistd.h>

#include <filesystem>

#include "libmaru/base/unique_fd.h"
#include "tests/bench/cases/cases.h"
#include "tests/bench/client_worker.h"
#include "tests/bench/marud_process.h"
#include "tests/bench/other_process.h"
#include "tests/bench/redis.h"

namespace maru::bench {

namespace {

constexpr char kFloor[] = "floor: round trip + copy";

struct OneObject {
    PinnedClient pinned;
    MarudProcess marud;
    OtherProcess holder;
    Worker reader;
    PingPong ping;
    EngineMemory target;
    const size_t objects;
    std::vector<maru_digest> digests;
    std::vector<maru_lease *> leases;  // of some objects, for the copy alone
    size_t at = 0, copied = 0;

    OneObject(const Plan &plan, Wait wait, size_t bytes, size_t count)
        : marud({plan.marud, spin_us(wait), server_cpu(), "64G", ""}),
          holder({plan.bench, Role::Holder, marud.socket_path(), "holder", bytes, count,
                  client_cpu()}),
          reader({marud.socket_path(), "reader", bytes, 0, spin_us(wait), MARU_ROLE_WORKER,
                  MARU_SCOPE_WORKER, "other"}),
          ping(wait),
          target(count * bytes),
          objects(count) {
        for (size_t first = 0; first < count; first += kBatch)
            for (const maru_digest &digest :
                 reader.digests(static_cast<uint32_t>(first), std::min(kBatch, count - first)))
                digests.push_back(digest);
        leases.resize(count);
        must_be(maru_acquire(reader.ns(), digests.data(), count, nullptr, 0, leases.data()), count,
                "maru_acquire of the other process's objects");
    }
    ~OneObject() { maru_lease_release(leases.data(), leases.size()); }
    size_t bytes() const { return reader.object_bytes(); }

    double load_us(int turns) {
        std::vector<double> times;
        reader.warm();
        for (int i = 0; i < turns; ++i, at = (at + 1) % objects) {
            void *buffer = target.data() + at * bytes();
            const uint64_t begin = now_ns();
            const int64_t loaded =
                maru_load(reader.ns(), &digests[at], 1, nullptr, 0, &buffer, bytes(), nullptr);
            times.push_back(us_since(begin));
            must_be(loaded, 1, "maru_load");
        }
        return median(times);
    }
    double copy_us(int turns) {
        std::vector<double> times;
        for (int i = 0; i < turns; ++i, copied = (copied + 1) % objects) {
            const uint64_t begin = now_ns();
            maru_copy_out(target.data() + copied * bytes(), maru_lease_data(leases[copied]),
                          bytes());
            times.push_back(us_since(begin));
        }
        return median(times);
    }
};

// Files on tmpfs: opened, read whole and closed.
class Files {
  public:
    Files(size_t files, size_t bytes) : files_(files), bytes_(bytes) {
        std::string name = "/dev/shm/maru-bench-XXXXXX";
        if (!::mkdtemp(name.data()))
            throw NotMeasurable("/dev/shm cannot be written");
        folder_ = name;
        const std::vector<uint8_t> content(bytes, 7);
        for (size_t i = 0; i < files; ++i) {
            const UniqueFd fd(::open(path(i).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
            if (!fd || ::write(fd.get(), content.data(), bytes) != static_cast<ssize_t>(bytes)) {
                std::filesystem::remove_all(folder_);
                throw NotMeasurable("/dev/shm is too small");
            }
        }
    }
    ~Files() {
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }
    Files(const Files &) = delete;
    Files &operator=(const Files &) = delete;

    double read_us(uint8_t *target, int turns) {
        std::vector<double> times;
        for (int i = 0; i < turns; ++i, at_ = (at_ + 1) % files_) {
            const std::string name = path(at_);
            const uint64_t begin = now_ns();
            const UniqueFd fd(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
            const ssize_t got = ::read(fd.get(), target + at_ * bytes_, bytes_);
            times.push_back(us_since(begin));
            must_be(got, bytes_, "read of a file on tmpfs");
        }
        return median(times);
    }

  private:
    std::string path(size_t i) const { return folder_ + "/" + std::to_string(i); }
    const size_t files_, bytes_;
    std::string folder_;
    size_t at_ = 0;
};

void add_peers(Group &group, const std::shared_ptr<OneObject> &o, int turns,
               const std::string &redis, const std::string &files) {
    try {
        auto server = std::make_shared<Redis>();
        server->fill(o->objects, o->bytes());
        auto at = std::make_shared<size_t>(0);
        group.add({redis,
                   "us",
                   "",
                   [=] {
                       std::vector<double> times;
                       for (int i = 0; i < turns; ++i, *at = (*at + 1) % o->objects) {
                           const uint64_t begin = now_ns();
                           server->get(*at, o->target.data() + *at * o->bytes(), o->bytes());
                           times.push_back(us_since(begin));
                       }
                       return median(times);
                   },
                   {}});
    } catch (const NotMeasurable &why) {
        group.add_missing(redis, "us", why.what(), {});
    }
    try {
        auto made = std::make_shared<Files>(o->objects, o->bytes());
        group.add({files, "us", "", [=] { return made->read_us(o->target.data(), turns); }, {}});
    } catch (const NotMeasurable &why) {
        group.add_missing(files, "us", why.what(), {});
    }
}

void fill_group(Group &group, const Plan &plan, Wait wait, size_t bytes) {
    const bool spin = wait == Wait::Spin;
    if (spin && client_cpu() == kAnywhere)
        throw NotMeasurable("one processor only: two ends cannot spin");
    const size_t objects = plan.quick ? 32 : (size_t{128} << 20) / bytes;
    need_memory(4 * objects * bytes);
    auto o = std::make_shared<OneObject>(plan, wait, bytes, objects);
    group.keep(o);
    const int turns = plan.turns(static_cast<int>(std::min<size_t>(200, objects)));
    const std::string redis = "peer: Redis GET", files = "peer: file on tmpfs";
    group.add({kFloor, "us", "", [=] { return o->ping.round_us(turns) + o->copy_us(turns); }, {}});
    std::vector<Target> targets;
    if (bytes == 64u << 10)
        targets.push_back(at_most(1.2, kFloor));
    if (!spin) {
        add_peers(group, o, turns, redis, files);
        targets.push_back(at_most(1, redis));
        if (bytes >= 256u << 10)
            targets.push_back(at_most(1, files));
    }
    group.add({"load", "us", kFloor, [=] { return o->load_us(turns); }, targets});
}

}  // namespace

void add_one_object(Suite &suite, const Plan &plan) {
    std::vector<size_t> sizes = {64u << 10, 256u << 10, 1u << 20, 4u << 20};
    if (plan.quick)
        sizes = {64u << 10, 256u << 10};
    for (size_t size : sizes)
        for (Wait wait : {Wait::Block, Wait::Spin})
            suite.add("one object of another process, " + size_text(size) +
                          (wait == Wait::Block ? ", blocking" : ", spinning"),
                      [=](Group &group) { fill_group(group, plan, wait, size); });
}

}  // namespace maru::bench
