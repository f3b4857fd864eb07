#include "tests/bench/floors.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>

#include "libmaru/copy/copy.h"
#include "libmaru/digest/sha256.h"

namespace maru::bench {

namespace {

constexpr size_t kMessage = 64;

[[noreturn]] void die(const char *what) {
    std::perror(what);
    std::exit(1);
}

// A process that sends every packet back. Both sides block: the cost of two wake-ups.
class PingPong {
  public:
    PingPong() {
        int ends[2];
        if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
            die("socketpair");
        child_ = ::fork();
        if (child_ < 0)
            die("fork");
        if (child_ == 0) {
            ::close(ends[0]);
            char packet[kMessage];
            for (ssize_t got; (got = ::recv(ends[1], packet, sizeof packet, 0)) > 0;)
                if (::send(ends[1], packet, static_cast<size_t>(got), MSG_NOSIGNAL) != got)
                    break;
            ::_exit(0);
        }
        ::close(ends[1]);
        socket_ = ends[0];
    }
    ~PingPong() {
        ::close(socket_);
        ::waitpid(child_, nullptr, 0);
    }
    PingPong(const PingPong &) = delete;
    PingPong &operator=(const PingPong &) = delete;

    double round_us(int turns) {
        std::vector<double> times;
        char packet[kMessage] = {};
        for (int i = 0; i < turns; ++i) {
            const uint64_t begin = now_ns();
            if (::send(socket_, packet, sizeof packet, MSG_NOSIGNAL) != sizeof packet ||
                ::recv(socket_, packet, sizeof packet, 0) != sizeof packet)
                die("ping-pong");
            times.push_back(static_cast<double>(now_ns() - begin) / 1e3);
        }
        return median(times);
    }

  private:
    pid_t child_ = -1;
    int socket_ = -1;
};

// The least a directory can do: an open-addressed table, 32-byte keys, half full, prefetched.
class Table {
  public:
    explicit Table(size_t slots) : mask_(slots - 1), slots_(slots), order_(slots / 2) {
        std::mt19937_64 random(1);
        for (size_t i = 0; i < order_.size(); ++i) {
            Key key;
            for (uint64_t &word : key.words)
                word = random();
            size_t at = key.words[0] & mask_;
            while (slots_[at].used)
                at = (at + 1) & mask_;
            slots_[at] = {key, 1, {}};
            order_[i] = key;
        }
        std::shuffle(order_.begin(), order_.end(), random);
    }

    double round_us(size_t keys, int turns) {
        std::vector<double> times;
        for (int turn = 0; turn < turns; ++turn) {
            if (next_ + keys > order_.size())
                next_ = 0;
            const Key *batch = &order_[next_];
            next_ += keys;
            const uint64_t begin = now_ns();
            size_t found = 0;
            for (size_t i = 0; i < keys; ++i) {
                if (i + kAhead < keys)
                    __builtin_prefetch(&slots_[batch[i + kAhead].words[0] & mask_]);
                size_t at = batch[i].words[0] & mask_;
                while (slots_[at].used && std::memcmp(&slots_[at].key, &batch[i], sizeof(Key)) != 0)
                    at = (at + 1) & mask_;
                found += slots_[at].used;
            }
            times.push_back(static_cast<double>(now_ns() - begin) / 1e3);
            if (found != keys)
                die("lookup");
        }
        return median(times);
    }

  private:
    static constexpr size_t kAhead = 16;
    struct Key {
        uint64_t words[4];
    };
    struct alignas(64) Slot {
        Key key{};
        uint64_t used = 0;
        uint64_t rest[3] = {};
    };
    const size_t mask_;
    std::vector<Slot> slots_;
    std::vector<Key> order_;
    size_t next_ = 0;
};

// Source and target that rotate, so that each copy meets memory that was not used lately. The target
// is a memfd on base pages, as a pool is at worst.
class CopyArea {
  public:
    explicit CopyArea(size_t bytes) : bytes_(bytes) {
        void *source =
            ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        const int fd = ::memfd_create("maru-bench", MFD_CLOEXEC);
        if (source == MAP_FAILED || fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0)
            die("memory");
        void *target = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ::close(fd);
        if (target == MAP_FAILED)
            die("mmap");
        source_ = static_cast<uint8_t *>(source);
        target_ = static_cast<uint8_t *>(target);
        std::memset(source_, 1, bytes);
        std::memset(target_, 2, bytes);
    }
    double gb_per_s(const copy::Kernel &kernel, size_t size, size_t total) {
        std::vector<double> figures;
        for (size_t done = 0; done < total; done += size) {
            if (at_ + size > bytes_)
                at_ = 0;
            const uint64_t begin = now_ns();
            kernel.copy(target_ + at_, source_ + at_, size);
            figures.push_back(static_cast<double>(size) / static_cast<double>(now_ns() - begin));
            at_ += size;
        }
        return median(figures);
    }

  private:
    const size_t bytes_;
    uint8_t *source_ = nullptr, *target_ = nullptr;
    size_t at_ = 0;
};

}  // namespace

std::string size_text(size_t bytes) {
    return bytes >= 1 << 20 ? std::to_string(bytes >> 20) + " MiB"
                            : std::to_string(bytes >> 10) + " KiB";
}
std::string lookup_floor(size_t keys) {
    return "floor: table lookup, " + std::to_string(keys) + " keys";
}
std::string rpc_floor(size_t keys) {
    return "floor: ping-pong + lookup, " + std::to_string(keys) + " keys";
}
std::string copy_floor(size_t bytes) { return "floor: best copy, " + size_text(bytes); }

void add_floors(Suite &suite, bool quick) {
    auto ping = std::make_shared<PingPong>();
    const int turns = quick ? 20 : 400;
    suite.add({kPingPong, "us", "", [=] { return ping->round_us(turns); }});

    auto table = std::make_shared<Table>(quick ? 1 << 14 : 1 << 20);
    for (size_t keys : {1u, 32u, 256u, 1024u, 4096u}) {
        // The sum is measured in one case, so that both halves see the same moment.
        suite.add({lookup_floor(keys), "us", "", [=] { return table->round_us(keys, turns); }});
        suite.add({rpc_floor(keys), "us", "",
                   [=] { return ping->round_us(turns / 2) + table->round_us(keys, turns / 2); }});
    }

    auto area = std::make_shared<CopyArea>(size_t{quick ? 8u : 256u} << 20);
    for (size_t size : {64u << 10, 256u << 10, 1u << 20, 2u << 20, 4u << 20}) {
        const size_t total = size_t{quick ? 8u : 64u} << 20;
        auto figures = std::make_shared<std::vector<double>>();
        for (const copy::Kernel &kernel : copy::kernels()) {
            if (!kernel.supported())
                continue;
            suite.add({"copy " + std::string(kernel.name) + ", " + size_text(size), "GB/s",
                       copy_floor(size), [=, &kernel] {
                           const double figure = area->gb_per_s(kernel, size, total);
                           figures->push_back(figure);
                           return figure;
                       }});
        }
        suite.add({copy_floor(size), "GB/s", "", [=] {
                       const double best = *std::max_element(figures->begin(), figures->end());
                       figures->clear();
                       return best;
                   }});
    }

    suite.add({kHashFloor, "GB/s", "", [=] {
                   std::vector<uint8_t> data(400000, 7);
                   std::vector<double> seen;
                   for (int i = 0; i < (quick ? 1 : 20); ++i) {
                       digest::Sha256State state = digest::kSha256Initial;
                       const uint64_t begin = now_ns();
                       digest::sha256_compress()(state, data.data(), data.size() / 64);
                       seen.push_back(static_cast<double>(data.size()) /
                                      static_cast<double>(now_ns() - begin));
                       data[0] = static_cast<uint8_t>(state[0]);
                   }
                   return median(seen);
               }});
}

}  // namespace maru::bench
