#include "tests/replay/options.h"

#include <getopt.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "libmaru/base/size_text.h"

namespace maru::replay {
namespace {

enum Option {
    kTrace = 256,
    kRequests,
    kWorkers,
    kInFlight,
    kPool,
    kPage,
    kLayers,
    kKvHeads,
    kHeadDim,
    kDtype,
    kBlockTokens,
    kEvict,
    kKill,
    kKills,
    kSeed,
    kMarud,
    kMaructl,
    kSocket,
    kJson,
    kWorkerFd,
    kWorkerIndex,
    kHelp,
};

const option kOptions[] = {
    {"trace", required_argument, nullptr, kTrace},
    {"requests", required_argument, nullptr, kRequests},
    {"workers", required_argument, nullptr, kWorkers},
    {"in-flight", required_argument, nullptr, kInFlight},
    {"pool", required_argument, nullptr, kPool},
    {"page", required_argument, nullptr, kPage},
    {"layers", required_argument, nullptr, kLayers},
    {"kv-heads", required_argument, nullptr, kKvHeads},
    {"head-dim", required_argument, nullptr, kHeadDim},
    {"dtype", required_argument, nullptr, kDtype},
    {"block-tokens", required_argument, nullptr, kBlockTokens},
    {"evict", required_argument, nullptr, kEvict},
    {"kill", no_argument, nullptr, kKill},
    {"kills", required_argument, nullptr, kKills},
    {"seed", required_argument, nullptr, kSeed},
    {"marud", required_argument, nullptr, kMarud},
    {"maructl", required_argument, nullptr, kMaructl},
    {"socket", required_argument, nullptr, kSocket},
    {"json", required_argument, nullptr, kJson},
    {"worker-fd", required_argument, nullptr, kWorkerFd},
    {"worker-index", required_argument, nullptr, kWorkerIndex},
    {"help", no_argument, nullptr, kHelp},
    {nullptr, 0, nullptr, 0},
};

const char *option_name(int value) {
    for (const option &o : kOptions)
        if (o.name && o.val == value)
            return o.name;
    return "?";
}

// The first error wins, so that a parse reads as a list of assignments.
class Reader {
  public:
    explicit Reader(int option) : option_(option) {}
    template <typename T>
    void number(T &target, uint64_t low, uint64_t high) {
        char *end = nullptr;
        errno = 0;
        uint64_t value = std::strtoull(optarg, &end, 10);
        if (errno || end == optarg || *end || *optarg == '-' || value < low || value > high)
            return fail("a whole number from " + std::to_string(low) + " to " +
                        std::to_string(high));
        target = static_cast<T>(value);
    }
    void size(uint64_t &target, uint64_t low, uint64_t high) {
        auto value = parse_size(optarg);
        if (!value || *value < low || *value > high)
            return fail("a size from " + format_size(low) + " to " + format_size(high));
        target = *value;
    }
    void fail(const std::string &allowed) {
        error_ =
            std::string("--") + option_name(option_) + " '" + optarg + "': allowed is " + allowed;
    }
    const std::string &error() const { return error_; }

  private:
    int option_;
    std::string error_;
};

}  // namespace

uint64_t Options::pool_page_bytes() const {
    if (page_bytes)
        return page_bytes;
    uint64_t bytes = block_bytes();
    return std::clamp<uint64_t>(bytes & ~(bytes - 1), 4096, 2 << 20);
}

std::string Options::namespace_text() const {
    return "maru-replay/1 layers=" + std::to_string(layers) +
           " kv_heads=" + std::to_string(kv_heads) + " head_dim=" + std::to_string(head_dim) +
           " dtype=" + dtype + " block_tokens=" + std::to_string(block_tokens) + " tp=1 pp=1";
}

const char *options_help() {
    return "maru-replay: replay a request trace through several workers and verify every loaded "
           "byte\n"
           "\n"
           "  --trace PATH        JSON lines of timestamp, input_length, output_length, hash_ids;\n"
           "                      without it a small trace is generated\n"
           "  --requests N        only the first N\n"
           "  --marud PROGRAM     start this marud (user mode); or --socket PATH of a running one\n"
           "  --maructl PROGRAM   ask it at the end whether anything is still charged\n"
           "  --workers N         worker processes (4)\n"
           "  --in-flight N       requests at a time per worker (2)\n"
           "  --pool SIZE         of all workers together (1G)\n"
           "  --page SIZE         allocation unit (from the block size)\n"
           "  --layers, --kv-heads, --head-dim, --dtype, --block-tokens\n"
           "                      the model; its KV block is what is stored (16 KiB)\n"
           "  --evict lru|none    when full: retire the least recently used, or skip admission "
           "(lru)\n"
           "  --kill              kill -9 workers and marud at random moments\n"
           "  --kills N           how often (one per 300 requests)\n"
           "  --seed N            of the kills and of the generated trace (1)\n"
           "  --json FILE         the results as JSON as well; - is standard output\n";
}

Result<Options> parse_options(int argc, char **argv) {
    Options o;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, "", kOptions, nullptr)) != -1;) {
        Reader read(c);
        switch (c) {
            case kTrace:
                o.trace = optarg;
                break;
            case kRequests:
                read.number(o.requests, 1, UINT32_MAX);
                break;
            case kWorkers:
                read.number(o.workers, 1, 64);
                break;
            case kInFlight:
                read.number(o.in_flight, 1, 64);
                break;
            case kPool:
                read.size(o.pool_bytes, 1 << 20, 1ull << 46);
                break;
            case kPage:
                read.size(o.page_bytes, 4096, 1 << 30);
                if (o.page_bytes & (o.page_bytes - 1))
                    read.fail("a power of two");
                break;
            case kLayers:
                read.number(o.layers, 1, 1024);
                break;
            case kKvHeads:
                read.number(o.kv_heads, 1, 1024);
                break;
            case kHeadDim:
                read.number(o.head_dim, 1, 1024);
                break;
            case kDtype:
                o.dtype = optarg;
                if (o.dtype == "float32")
                    o.dtype_bytes = 4;
                else if (o.dtype == "bfloat16" || o.dtype == "float16")
                    o.dtype_bytes = 2;
                else if (o.dtype == "fp8_e4m3")
                    o.dtype_bytes = 1;
                else
                    read.fail("float32, bfloat16, float16 or fp8_e4m3");
                break;
            case kBlockTokens:
                read.number(o.block_tokens, 1, 65536);
                break;
            case kEvict:
                if (std::string(optarg) != "lru" && std::string(optarg) != "none")
                    read.fail("lru or none");
                o.evict = std::string(optarg) == "lru";
                break;
            case kKill:
                o.kill = true;
                break;
            case kKills:
                read.number(o.kills, 1, 100000);
                break;
            case kSeed:
                read.number(o.seed, 0, UINT64_MAX);
                break;
            case kMarud:
                o.marud = optarg;
                break;
            case kMaructl:
                o.maructl = optarg;
                break;
            case kSocket:
                o.socket = optarg;
                break;
            case kJson:
                o.json = optarg;
                break;
            case kWorkerFd:
                o.worker_fd = optarg;
                break;
            case kWorkerIndex:
                read.number(o.worker_index, 0, 63);
                break;
            case kHelp:
                o.help = true;
                break;
            default:
                return Error{EINVAL, std::string("unknown option or missing value: '") +
                                         argv[optind - 1] + "'; see --help"};
        }
        if (!read.error().empty())
            return Error{EINVAL, read.error()};
    }
    if (o.help)
        return o;
    if (optind < argc)
        return Error{EINVAL, std::string("'") + argv[optind] + "' is not an option; see --help"};
    if (o.marud.empty() == o.socket.empty())
        return Error{EINVAL, "give either --marud PROGRAM or --socket PATH"};
    if (o.kill && o.marud.empty())
        return Error{EINVAL, "--kill kills marud too, so it needs --marud PROGRAM"};
    if (o.block_bytes() < 64 || o.block_bytes() > (1ull << 28))
        return Error{EINVAL, "a block of " + format_size(o.block_bytes()) +
                                 "; the model's options allow 64 bytes to 256 MiB"};
    if (o.pool_bytes / o.workers < o.block_bytes() * 2)
        return Error{EINVAL,
                     "--pool " + format_size(o.pool_bytes) + " is less than two blocks a worker"};
    return o;
}

}  // namespace maru::replay
