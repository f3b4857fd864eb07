// libmaru's half of pools of scope host, where marud refuses, restarts or is silent in between.
//
// Clients of this process, behind a proxy where messages must be lost, beside engines in processes of
// their own. Every byte that is read is compared.
#include <gtest/gtest.h>
#include <maru/maru.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

#include "tests/integration/engine_process.h"
#include "tests/integration/marud_fixture.h"
#include "tests/integration/socket_proxy.h"
#include "tests/integration/wire_client.h"
#include "tests/replay/pattern.h"

namespace maru::test {
namespace {

using wire::Status;
using Message = SocketProxy::Message;

constexpr char kNamespace[] = "host-pool-test/1";  // as the engines of engine_process.cc
constexpr uint64_t kBytes = kEngineObjectBytes;
constexpr uint64_t kSegment = 1 << 20;
constexpr uint32_t kPerSegment = kSegment / kBytes;

std::string config(const std::string &more = "") {
    return "[cpu]\nhost_bytes = \"64M\"\nuid_bytes = \"8M\"\nhost_segment_bytes = \"1M\"\n" + more;
}
MarudOptions options() {
    MarudOptions made;
    made.config = config();
    return made;
}
EngineOptions engine(const Marud &marud, const std::string &name, uint64_t pool_bytes = 8 << 20) {
    EngineOptions made;
    made.socket = marud.socket();
    made.engine = name;
    made.pool_bytes = pool_bytes;
    return made;
}

maru_digest digest_of(uint32_t number) {
    maru_digest digest{};
    std::memcpy(digest.bytes, &number, sizeof number);
    digest.bytes[31] = 9;
    return digest;
}

bool eventually(const std::function<bool()> &condition, int milliseconds = 20'000) {
    for (int waited = 0; waited < milliseconds; waited += 5) {
        if (condition())
            return true;
        ::usleep(5'000);
    }
    return condition();
}

// A call that hangs would hang the test with it: then the program ends here.
void returns(const std::function<void()> &call) {
    std::atomic<bool> done{false};
    std::thread caller([&] {
        call();
        done = true;
    });
    if (!eventually([&] { return done.load(); }, 60'000)) {
        std::fprintf(stderr, "a call did not return within a minute\n");
        std::_Exit(1);
    }
    caller.join();
}

std::string told_until(EngineProcess &who, const std::string &line, const std::string &wanted) {
    std::string answer;
    (void)eventually([&] { return (answer = who.tell(line)) == wanted || answer == "gone"; });
    return answer;
}

class Client {
  public:
    Client(const std::string &socket, const char *name, uint64_t pool_bytes,
           uint32_t timeout_ms = 15'000, uint32_t margin_mib = 1) {
        maru_client_options options{};
        options.size = sizeof options;
        options.socket_path = socket.c_str();
        options.engine = name;
        options.timeout_ms = timeout_ms;
        options.connect_ms = 15'000;
        EXPECT_EQ(maru_client_open(&options, &client), 0) << maru_last_error();
        if (!client)
            return;
        EXPECT_EQ(maru_namespace_open(client, kNamespace, &ns), 0) << maru_last_error();
        maru_schema schema{sizeof schema, kBytes, "pattern"};
        EXPECT_EQ(maru_client_describe(client, ns, &schema), 0) << maru_last_error();
        if (pool_bytes == 0)
            return;
        maru_pool_options out{};
        out.size = sizeof out;
        out.capacity_bytes = pool_bytes;
        out.page_bytes = 32 << 10;
        out.populate_margin_mib = margin_mib;
        out.scope = MARU_SCOPE_HOST;
        EXPECT_EQ(maru_pool_open(client, &out, &pool), 0) << maru_last_error();
    }
    ~Client() {
        if (client) {
            EXPECT_EQ(maru_client_close(client), 0) << maru_last_error();
        }
    }
    void close() {
        maru_client *closed = std::exchange(client, nullptr);
        returns([&] { EXPECT_EQ(maru_client_close(closed), 0) << maru_last_error(); });
    }

    int reserve() {
        maru_reservation run{};
        const int code = maru_reserve(pool, kBytes, 1, &run);
        text = code ? maru_last_error() : "";
        if (code == 0)
            maru_abort(pool, &run, 1);
        return code;
    }
    // Keeps them.
    int fill() {
        maru_reservation run{};
        int code = 0;
        while ((code = maru_reserve(pool, kBytes, 1, &run)) == 0)
            reserved.push_back(run);
        text = maru_last_error();
        return code;
    }
    void give_back() {
        EXPECT_EQ(maru_abort(pool, reserved.data(), reserved.size()), 0) << maru_last_error();
        reserved.clear();
    }
    int store(uint32_t number) {
        maru_reservation run{};
        int code = -ENOSPC;
        (void)eventually([&] {
            code = maru_reserve(pool, kBytes, 1, &run);
            return code != -ENOSPC;
        });
        if (code != 0)
            return code;
        maru_key key{};
        key.digest = digest_of(number);
        replay::fill_pattern(run.data, kBytes, replay::pattern_seed(key.digest, 1));
        int result = 0;
        maru_commit(ns, pool, &key, &run, 1, &result);
        return result;
    }
    int64_t acquire(uint32_t number, maru_lease **lease) {
        const maru_digest digest = digest_of(number);
        const int64_t got = maru_acquire(ns, &digest, 1, nullptr, 0, lease);
        text = got < 0 ? maru_last_error() : "";
        return got;
    }
    static bool right(const maru_lease *lease, uint32_t number) {
        return lease && maru_lease_length(lease) == kBytes &&
               replay::count_mismatches(maru_lease_data(lease), kBytes,
                                        replay::pattern_seed(digest_of(number), 1)) == 0;
    }
    struct maru_pool_info info() {
        struct maru_pool_info out {};
        out.size = sizeof out;
        EXPECT_EQ(maru_pool_info(pool, &out), 0);
        return out;
    }
    struct maru_client_info client_info() {
        struct maru_client_info out {};
        out.size = sizeof out;
        EXPECT_EQ(maru_client_info(client, &out), 0);
        return out;
    }

    maru_client *client = nullptr;
    maru_namespace *ns = nullptr;
    maru_pool *pool = nullptr;
    std::vector<maru_reservation> reserved;
    std::string text;  // of the last failure
};

// ---- growth --------------------------------------------------------------------------------------

TEST(HostPoolClient, ADrainDoesNotEndThePoolsGrowth) {
    Marud marud(options());
    marud.start();
    Client owner(marud.socket(), "owner", 4 << 20);
    WireClient operator_(marud.socket());
    ASSERT_TRUE(operator_.hello());
    ASSERT_EQ(operator_.status(wire::DrainRequest{true}), Status::Ok);
    // Full is full, whatever the reason: an admission to be skipped. Why is in the text and in info.
    ASSERT_EQ(maru_pool_wait_populated(owner.pool, 20'000), 0) << maru_last_error();
    EXPECT_EQ(owner.fill(), -ENOSPC);
    EXPECT_TRUE(eventually([&] { return owner.info().populate_result == -ENODEV; }))
        << owner.info().populate_result;
    EXPECT_EQ(owner.reserve(), -ENOSPC);
    EXPECT_NE(owner.text.find("draining"), std::string::npos) << owner.text;
    EXPECT_EQ(owner.info().populating, 0u);
    ASSERT_EQ(operator_.status(wire::DrainRequest{false}), Status::Ok);
    EXPECT_TRUE(eventually([&] { return owner.reserve() == 0; })) << owner.text;
    EXPECT_EQ(owner.info().populate_result, 0);
    owner.give_back();
}

TEST(HostPoolClient, APoolThatCannotBePopulatedSaysWhyItIsFull) {
    Marud marud(options());
    marud.start();
    // A margin that no host has.
    Client owner(marud.socket(), "owner", 4 << 20, 15'000, UINT32_MAX);
    EXPECT_EQ(maru_pool_wait_populated(owner.pool, 20'000), -ENOMEM);
    EXPECT_EQ(owner.reserve(), -ENOSPC);
    EXPECT_NE(owner.text.find("must leave"), std::string::npos) << owner.text;
}

// ---- leaving -------------------------------------------------------------------------------------

TEST(HostPoolClient, CloseReturnsWhileASegmentIsNotConfirmed) {
    Marud marud(options());
    marud.start();
    SocketProxy proxy(marud.socket());
    std::atomic<int> asked{0};
    proxy.set_rule([&](const Message &message) {
        const auto *mapped = message.asks<wire::SegmentMappedRequest>();
        if (!mapped || mapped->segment != 1)
            return SocketProxy::pass();
        ++asked;
        return SocketProxy::drop();
    });
    Client owner(proxy.path(), "owner", 4 << 20, 1000);
    ASSERT_EQ(maru_pool_wait_populated(owner.pool, 20'000), 0) << maru_last_error();
    EXPECT_EQ(owner.fill(), -ENOSPC);
    ASSERT_TRUE(eventually([&] { return asked > 0; }));
    owner.give_back();
    owner.close();
}

TEST(HostPoolClient, ARestartWhileAPoolIsLeftKeepsWhatIsInIt) {
    Marud marud(options());
    marud.start();
    SocketProxy proxy(marud.socket());
    std::atomic<int> left{0};
    proxy.set_rule([&](const Message &message) {
        const auto *close = message.asks<wire::ClosePoolRequest>();
        if (!close || close->phase != wire::ClosePhase::Leave || left++ > 0)
            return SocketProxy::pass();
        return SocketProxy::drop();
    });
    Client owner(proxy.path(), "owner", 4 << 20);
    for (uint32_t number = 0; number < 2 * kPerSegment; ++number)
        ASSERT_EQ(owner.store(number), 0) << number;
    std::thread restarter([&] {
        if (eventually([&] { return left > 0; }))
            marud.restart();
    });
    owner.close();
    restarter.join();
    EXPECT_EQ(left, 2);
    EngineProcess next(engine(marud, "next"));
    EXPECT_EQ(next.tell("hits 20"), "hits 20") << marud.log();
    EXPECT_EQ(next.tell("load 20"), "loaded 20 wrong 0");
}

TEST(HostPoolClient, AClientThatClosesWhileMarudIsAwayLeavesItsObjects) {
    Marud marud(options());
    marud.start();
    Client owner(marud.socket(), "owner", 4 << 20);
    for (uint32_t number = 0; number < kPerSegment; ++number)
        ASSERT_EQ(owner.store(number), 0) << number;
    marud.kill();
    ASSERT_TRUE(eventually([&] { return owner.client_info().state != MARU_STATE_ATTACHED; }));
    std::thread starter([&] {
        ::usleep(300'000);
        marud.start();
    });
    owner.close();
    starter.join();
    EngineProcess next(engine(marud, "next"));
    EXPECT_EQ(next.tell("hits 10"), "hits 10") << marud.log();
    EXPECT_EQ(next.tell("load 10"), "loaded 10 wrong 0");
}

TEST(HostPoolClient, CloseDoesNotWaitForeverForAMarudThatIsAway) {
    Marud marud(options());
    marud.start();
    Client owner(marud.socket(), "owner", 4 << 20, 500);
    ASSERT_EQ(owner.store(0), 0);
    marud.kill();
    owner.close();
}

// ---- after a restart -----------------------------------------------------------------------------

// marud refuses the owner's own leases, and keeps the object for another reader.
TEST(HostPoolClient, PagesThatMarudKeepsForOthersAreNotUsedAgain) {
    Marud marud(options());
    marud.start();
    EngineProcess owner(engine(marud, "owner", kSegment));
    ASSERT_EQ(owner.tell("store 0 10"), "stored 10 present 0 refused 0 -");
    ASSERT_EQ(owner.tell("hold 0"), "held");
    ASSERT_EQ(owner.tell("hold 0"), "held");
    EngineOptions without = engine(marud, "reader");
    without.pool = false;
    EngineProcess reader(without);
    ASSERT_EQ(reader.tell("hold 0"), "held");
    marud.set_config(config("[sessions]\nleases_per_session = 1\n"));
    marud.restart();
    ASSERT_EQ(told_until(reader, "hits 10", "hits 9"), "hits 9") << marud.log();
    EXPECT_EQ(owner.tell("check"), "right");
    EXPECT_EQ(owner.tell("drop"), "dropped");
    EXPECT_EQ(owner.tell("store 100 1"), "stored 0 present 0 refused 1 ENOSPC");
    EXPECT_EQ(reader.tell("check"), "right");
    EXPECT_EQ(reader.tell("drop"), "dropped");
    EXPECT_EQ(owner.tell("hits 10"), "hits 9");
}

// In a place in which marud does not know a lease another file may stand.
TEST(HostPoolClient, AViewOfWhatMarudDoesNotKnowIsNotUsedForAnythingNew) {
    Marud marud(options());
    marud.start();
    EngineProcess owner(engine(marud, "owner"));
    ASSERT_EQ(owner.tell("store 0 4"), "stored 4 present 0 refused 0 -");
    SocketProxy proxy(marud.socket());
    std::atomic<int> views{0};
    std::atomic<uint64_t> republish{0};
    proxy.set_rule([&](const Message &message) {
        if (message.answers<wire::ViewReply>())
            ++views;
        if (message.asks<wire::RepublishRequest>())
            republish = message.request->id;
        if (!message.answers<wire::ItemStatusReply>() || message.reply()->id != republish)
            return SocketProxy::pass();
        const Status unknown = Status::NotFound;
        const wire::Id none = 0;
        return SocketProxy::replace({republish, wire::ItemStatusReply{{&unknown, 1}, {&none, 1}}});
    });
    Client reader(proxy.path(), "reader", 0);
    maru_lease *first = nullptr, *second = nullptr, *third = nullptr;
    ASSERT_EQ(reader.acquire(0, &first), 1) << reader.text;
    ASSERT_EQ(reader.acquire(1, &second), 1) << reader.text;
    EXPECT_EQ(views, 1);
    ASSERT_EQ(maru_lease_release(&second, 1), 0);
    marud.restart();
    ASSERT_TRUE(eventually([&] { return reader.client_info().reconnects > 0; }));
    ASSERT_EQ(told_until(owner, "hits 4", "hits 4"), "hits 4") << marud.log();
    ASSERT_EQ(reader.acquire(1, &second), 1) << reader.text;
    EXPECT_EQ(views, 2);
    ASSERT_EQ(reader.acquire(2, &third), 1) << reader.text;
    EXPECT_EQ(views, 2);
    EXPECT_NE(static_cast<const char *>(maru_lease_data(second)) -
                  static_cast<const char *>(maru_lease_data(first)),
              static_cast<ptrdiff_t>(kBytes));
    EXPECT_TRUE(Client::right(first, 0));
    EXPECT_TRUE(Client::right(second, 1));
    EXPECT_TRUE(Client::right(third, 2));
    for (maru_lease *lease : {first, second, third})
        EXPECT_EQ(maru_lease_release(&lease, 1), 0);
}

// ---- views ---------------------------------------------------------------------------------------

TEST(HostPoolClient, AViewThatCannotBeReceivedIsAnErrorAndNotAMiss) {
    Marud marud(options());
    marud.start();
    EngineProcess owner(engine(marud, "owner"));
    ASSERT_EQ(owner.tell("store 0 4"), "stored 4 present 0 refused 0 -");
    SocketProxy proxy(marud.socket());
    std::atomic<int> views{0};
    proxy.set_rule([&](const Message &message) {
        if (!message.answers<wire::ViewReply>())
            return SocketProxy::pass();
        ++views;
        return SocketProxy::without_descriptors();
    });
    Client reader(proxy.path(), "reader", 0);
    maru_lease *leases[4] = {};
    maru_digest digests[4];
    for (uint32_t i = 0; i < 4; ++i)
        digests[i] = digest_of(i);
    EXPECT_EQ(maru_acquire(reader.ns, digests, 4, nullptr, 0, leases), -EMFILE);
    EXPECT_NE(std::string(maru_last_error()).find("RLIMIT_NOFILE"), std::string::npos)
        << maru_last_error();
    EXPECT_EQ(views, 1);  // one answer for all that lie in it
    for (const maru_lease *lease : leases)
        EXPECT_EQ(lease, nullptr);
    EXPECT_EQ(reader.client_info().leases, 0u);
    proxy.set_rule(nullptr);
    // What marud does not have is a miss still, and what it has is read.
    EXPECT_EQ(maru_acquire(reader.ns, digests, 4, nullptr, 0, leases), 4) << maru_last_error();
    for (uint32_t i = 0; i < 4; ++i)
        EXPECT_TRUE(Client::right(leases[i], i));
    EXPECT_EQ(maru_lease_release(leases, 4), 0);
    maru_lease *none = nullptr;
    EXPECT_EQ(reader.acquire(99, &none), 0) << reader.text;
}

}  // namespace
}  // namespace maru::test
