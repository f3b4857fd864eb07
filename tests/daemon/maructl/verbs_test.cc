// Whole commands against a fake marud over a socket pair.
#include <gtest/gtest.h>

#include "tests/daemon/maructl/fake_marud.h"

namespace maru::maructl {
namespace {

using namespace test;
using wire::ListKind;

const std::string kDigest(64, 'a');

bool has(const std::string &text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

// Two namespaces, on two pages.
std::optional<wire::ReplyBody> list_namespaces(const wire::Request &request) {
    const auto *list = std::get_if<wire::ListRequest>(&request.body);
    if (!list || list->kind != ListKind::Namespaces)
        return std::nullopt;
    wire::NamespaceRow row;
    row.namespace_id = list->cursor == 0 ? 0x500000001 : 0x500000002;
    row.text = list->cursor == 0 ? "llama/bf16" : "qwen/fp8";
    row.uid = 1000;
    return wire::ListReply{std::vector<wire::NamespaceRow>{row}, list->cursor == 0 ? 77u : 0u};
}

TEST(MaructlVerbs, StatusShowsWhatMarudSays) {
    auto answer = [](const wire::Request &) -> std::optional<wire::ReplyBody> {
        wire::StatusReply status;
        status.version = "0.1.0";
        status.pid = 12;
        status.uptime_ms = 65'000;
        status.usage.capacity_bytes = 3ull << 29;
        status.fdstore = "systemd";
        return status;
    };
    {
        FakeMarud marud(answer);
        const Outcome outcome = run_words({"status"}, marud.opener());
        EXPECT_EQ(outcome.exit, kOk) << outcome.err;
        EXPECT_EQ(outcome.err, "");
        EXPECT_TRUE(has(outcome.out, "running for       1m 5s\n")) << outcome.out;
        EXPECT_TRUE(has(outcome.out, "capacity          1.5 GiB\n")) << outcome.out;
        EXPECT_EQ(marud.requests(), (std::vector<std::string>{"hello", "status"}));
    }
    {
        FakeMarud marud(answer);
        const Outcome outcome = run_words({"status", "--bytes"}, marud.opener());
        EXPECT_TRUE(has(outcome.out, "running for       65000\n")) << outcome.out;
        EXPECT_TRUE(has(outcome.out, "capacity          1610612736\n")) << outcome.out;
    }
    FakeMarud marud(answer);
    const Outcome outcome = run_words({"status", "--json"}, marud.opener());
    EXPECT_EQ(outcome.exit, kOk);
    EXPECT_TRUE(has(outcome.out, "{\"version\":\"0.1.0\",\"pid\":12,\"uptime_ms\":65000,"))
        << outcome.out;
    EXPECT_TRUE(has(outcome.out, "\"capacity_bytes\":1610612736,")) << outcome.out;
}

TEST(MaructlVerbs, ANonceIsSentBackFirstAndEventsArePassedOver) {
    FakeMarud marud([](const wire::Request &) { return wire::StatusOnly{}; });
    marud.nonce = 0x1234;
    marud.event_before_reply = true;
    const Outcome outcome = run_words({"reload"}, marud.opener());
    EXPECT_EQ(outcome.exit, kOk) << outcome.err;
    EXPECT_EQ(outcome.out, "configuration reloaded\n");
    EXPECT_EQ(marud.requests(), (std::vector<std::string>{"hello", "hello_proof", "reload"}));
}

TEST(MaructlVerbs, ListsFollowTheCursor) {
    FakeMarud marud(list_namespaces);
    const Outcome outcome = run_words({"namespace", "--json"}, marud.opener());
    EXPECT_EQ(outcome.exit, kOk) << outcome.err;
    EXPECT_EQ(outcome.out,
              "{\"namespaces\":["
              "{\"namespace\":\"0x500000001\",\"objects\":0,\"replicas\":0,\"object_bytes\":0,"
              "\"uid\":1000,"
              "\"text\":\"llama/bf16\"},"
              "{\"namespace\":\"0x500000002\",\"objects\":0,\"replicas\":0,\"object_bytes\":0,"
              "\"uid\":1000,"
              "\"text\":\"qwen/fp8\"}]}\n");
}

TEST(MaructlVerbs, EveryListAsksForItsKind) {
    for (auto [verb, kind, title] : {std::tuple("session", ListKind::Sessions, "SESSION"),
                                     {"pool", ListKind::Pools, "POOL"},
                                     {"namespace", ListKind::Namespaces, "NAMESPACE"},
                                     {"object", ListKind::Objects, "NAMESPACE"},
                                     {"lease", ListKind::Leases, "REPLICA"}}) {
        FakeMarud marud([&, kind = kind](const wire::Request &r) -> std::optional<wire::ReplyBody> {
            EXPECT_EQ(std::get<wire::ListRequest>(r.body).kind, kind);
            wire::ListReply list;
            switch (kind) {
                case ListKind::Sessions:
                    list.rows = std::vector<wire::SessionRow>(1);
                    break;
                case ListKind::Pools:
                    list.rows = std::vector<wire::PoolRow>(1);
                    break;
                case ListKind::Namespaces:
                    list.rows = std::vector<wire::NamespaceRow>(1);
                    break;
                case ListKind::Objects:
                    list.rows = std::vector<wire::ObjectRow>(1);
                    break;
                case ListKind::Leases:
                    list.rows = std::vector<wire::LeaseRow>(1);
                    break;
            }
            return list;
        });
        const Outcome outcome = run_words({verb}, marud.opener());
        EXPECT_EQ(outcome.exit, kOk) << outcome.err;
        EXPECT_EQ(outcome.out.rfind(title, 0), 0u) << outcome.out;
        EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 2);
    }
}

TEST(MaructlVerbs, APageThatRepeatsEndsTheListing) {
    FakeMarud marud([](const wire::Request &) {
        return wire::ListReply{std::vector<wire::LeaseRow>(), 5};
    });
    const Outcome outcome = run_words({"lease"}, marud.opener());
    EXPECT_EQ(outcome.exit, kFailed);
    EXPECT_TRUE(has(outcome.err, "repeats a page"));
}

TEST(MaructlVerbs, ANamespaceIsNamedByItsTextOrId) {
    for (const char *name : {"qwen/fp8", "0x500000002"}) {
        FakeMarud marud([&](const wire::Request &r) -> std::optional<wire::ReplyBody> {
            if (auto namespaces = list_namespaces(r))
                return namespaces;
            const auto &retire = std::get<wire::AdminRetireRequest>(r.body);
            EXPECT_EQ(retire.namespace_id, 0x500000002u);
            EXPECT_FALSE(retire.key.has_value());
            return wire::CountReply{5, 2};
        });
        const Outcome outcome = run_words({"retire", name}, marud.opener());
        EXPECT_EQ(outcome.exit, kOk) << outcome.err;
        EXPECT_EQ(outcome.out, "retired 5 replicas, 2 of them still have readers\n");
    }
    FakeMarud marud(list_namespaces);
    const Outcome outcome = run_words({"retire", "qwen/fp9"}, marud.opener());
    EXPECT_EQ(outcome.exit, kFailed);
    EXPECT_TRUE(has(outcome.err, "did you mean 'qwen/fp8'?")) << outcome.err;
}

TEST(MaructlVerbs, ATextThatSeveralUsersHaveNeedsAUid) {
    auto answer = [](const wire::Request &r) -> std::optional<wire::ReplyBody> {
        if (std::holds_alternative<wire::ListRequest>(r.body)) {
            std::vector<wire::NamespaceRow> rows(2);
            rows[0] = {0x500000001, "llama", 1000, 0, 0, 0};
            rows[1] = {0x500000002, "llama", 1001, 0, 0, 0};
            return wire::ListReply{std::move(rows), 0};
        }
        EXPECT_EQ(std::get<wire::AdminRetireRequest>(r.body).namespace_id, 0x500000002u);
        return wire::CountReply{5, 2};
    };
    {
        FakeMarud marud(answer);
        const Outcome outcome = run_words({"retire", "llama"}, marud.opener());
        EXPECT_EQ(outcome.exit, kFailed);
        EXPECT_TRUE(has(outcome.err,
                        "0x500000001 of uid 1000, 0x500000002 of uid 1001; give its "
                        "id or --uid"))
            << outcome.err;
    }
    {
        FakeMarud marud(answer);
        const Outcome outcome = run_words({"retire", "llama", "--uid", "7"}, marud.opener());
        EXPECT_EQ(outcome.exit, kFailed);
    }
    FakeMarud marud(answer);
    const Outcome outcome = run_words({"retire", "llama", "--uid", "1001"}, marud.opener());
    EXPECT_EQ(outcome.exit, kOk) << outcome.err;
}

TEST(MaructlVerbs, RetireNamesOneObject) {
    FakeMarud marud([&](const wire::Request &r) -> std::optional<wire::ReplyBody> {
        const auto &retire = std::get<wire::AdminRetireRequest>(r.body);
        EXPECT_TRUE(retire.key.has_value());
        EXPECT_EQ(retire.key->shard, 1u);
        EXPECT_EQ(retire.key->part, 2u);
        EXPECT_EQ(retire.key->digest.bytes[7], 0xaa);
        return wire::CountReply{1, 0};
    });
    const std::string object = kDigest + "/1/2";
    const Outcome outcome = run_words({"retire", "0x1", object.c_str(), "--json"}, marud.opener());
    EXPECT_EQ(outcome.out, "{\"retired\":1,\"pending\":0}\n") << outcome.err;
}

TEST(MaructlVerbs, RetireByOptionMeansTheSame) {
    {
        FakeMarud marud([&](const wire::Request &r) -> std::optional<wire::ReplyBody> {
            if (auto namespaces = list_namespaces(r))
                return namespaces;
            EXPECT_EQ(std::get<wire::AdminRetireRequest>(r.body).namespace_id, 0x500000002u);
            EXPECT_FALSE(std::get<wire::AdminRetireRequest>(r.body).key.has_value());
            return wire::CountReply{5, 0};
        });
        const Outcome outcome =
            run_words({"retire", "--namespace", "qwen/fp8", "--uid", "1000"}, marud.opener());
        EXPECT_EQ(outcome.exit, kOk) << outcome.err;
        EXPECT_TRUE(has(outcome.out, "retired 5 replicas")) << outcome.out;
    }
    FakeMarud marud([&](const wire::Request &r) -> std::optional<wire::ReplyBody> {
        const auto &retire = std::get<wire::RetireSegmentRequest>(r.body);
        EXPECT_EQ(retire.pool, 0x500000007u);
        EXPECT_EQ(retire.segment, 3u);
        return wire::CountReply{9, 1};
    });
    const Outcome outcome =
        run_words({"retire", "--segment", "0x500000007:3", "--json"}, marud.opener());
    EXPECT_EQ(outcome.exit, kOk) << outcome.err;
    EXPECT_EQ(outcome.out, "{\"retired\":9,\"pending\":1}\n");
    EXPECT_EQ(marud.requests(), (std::vector<std::string>{"hello", "retire_segment"}));
}

TEST(MaructlVerbs, RetireGoesOnUntilAnAnswerIsNotAWholeOne) {
    int asked = 0;
    FakeMarud marud([&](const wire::Request &r) -> std::optional<wire::ReplyBody> {
        EXPECT_TRUE(std::holds_alternative<wire::AdminRetireRequest>(r.body));
        return ++asked < 3 ? wire::CountReply{wire::kMaxRetired, 2} : wire::CountReply{7, 1};
    });
    const Outcome outcome = run_words({"retire", "0x1", "--json"}, marud.opener());
    EXPECT_EQ(outcome.exit, kOk) << outcome.err;
    EXPECT_EQ(outcome.out, "{\"retired\":2055,\"pending\":5}\n");
    EXPECT_EQ(asked, 3);
}

TEST(MaructlVerbs, ExplainAsksForTheEngineAndUidGiven) {
    auto answer = [](const wire::Request &r) -> std::optional<wire::ReplyBody> {
        const auto &explain = std::get<wire::ExplainRequest>(r.body);
        EXPECT_EQ(explain.engine, "b");
        EXPECT_EQ(explain.uid, 7u);
        wire::ExplainReply reply;
        reply.summary = "no replica that this engine may read";
        wire::ExplainRow row;
        row.engine = "a";
        row.state = "ready";
        row.reason = "private to engine 'a' (uid 1000)";
        reply.replicas = {row};
        return reply;
    };
    {
        FakeMarud marud(answer);
        const Outcome outcome = run_words(
            {"explain", "0x1", kDigest.c_str(), "--engine", "b", "--uid", "7"}, marud.opener());
        EXPECT_EQ(outcome.exit, kOk) << outcome.err;
        EXPECT_EQ(outcome.out,
                  "miss: no replica that this engine may read\n"
                  "REPLICA  POOL  ENGINE  STATE  ELIGIBLE  REASON\n"
                  "0x0      0x0   a       ready  no        private to engine 'a' (uid 1000)\n");
    }
    FakeMarud marud(answer);
    const Outcome outcome = run_words(
        {"explain", "0x1", kDigest.c_str(), "--engine=b", "--uid=7", "--json"}, marud.opener());
    EXPECT_EQ(outcome.out,
              "{\"hit\":false,\"summary\":\"no replica that this engine may read\",\"replicas\":["
              "{\"replica\":\"0x0\",\"pool\":\"0x0\",\"engine\":\"a\",\"state\":\"ready\","
              "\"eligible\":false,\"reason\":\"private to engine 'a' (uid 1000)\"}]}\n");
}

TEST(MaructlVerbs, DrainIsTurnedOnAndOff) {
    for (bool enable : {true, false}) {
        FakeMarud marud([&](const wire::Request &r) -> std::optional<wire::ReplyBody> {
            EXPECT_EQ(std::get<wire::DrainRequest>(r.body).enable, enable);
            return wire::StatusOnly{};
        });
        const Outcome outcome =
            run_words({"drain", enable ? "on" : "off", "--json"}, marud.opener());
        EXPECT_EQ(outcome.exit, kOk);
        EXPECT_EQ(outcome.out, enable ? "{\"draining\":true}\n" : "{\"draining\":false}\n");
    }
}

TEST(MaructlVerbs, ARefusalIsAFailureInMarudsWords) {
    FakeMarud marud([](const wire::Request &) {
        return wire::StatusOnly{wire::Status::Denied, "only admins may drain; uid 7 is none", 0};
    });
    const Outcome outcome = run_words({"drain", "on"}, marud.opener());
    EXPECT_EQ(outcome.exit, kFailed);
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(outcome.err, "maructl: drain: DENIED: only admins may drain; uid 7 is none\n");
}

TEST(MaructlVerbs, ASilentMarudIsGivenUpAtTheTimeout) {
    FakeMarud marud([](const wire::Request &) { return std::nullopt; });
    const Outcome outcome = run_words({"status", "--timeout", "30ms"}, marud.opener());
    EXPECT_EQ(outcome.exit, kFailed);
    EXPECT_TRUE(has(outcome.err, "--timeout")) << outcome.err;
}

TEST(MaructlVerbs, AClosedConnectionIsSaid) {
    FakeMarud marud([](const wire::Request &) { return std::nullopt; });
    marud.hang_up = true;
    const Outcome outcome = run_words({"status"}, marud.opener());
    EXPECT_EQ(outcome.exit, kFailed);
    EXPECT_EQ(outcome.err, "maructl: marud closed the connection\n");
}

TEST(MaructlVerbs, WithoutMarudEveryVerbExitsThreeButVersion) {
    for (const Verb &verb : verbs()) {
        if (verb.name == "doctor" || verb.name == "completion")
            continue;  // ask nothing of marud that they cannot do without
        std::vector<const char *> words{verb.name.data(), "--socket", "/nowhere/marud.sock"};
        if (verb.name == "drain")
            words.push_back("on");
        if (verb.name == "retire" || verb.name == "explain")
            words.push_back("0x1");
        if (verb.name == "explain")
            words.insert(words.end(), {kDigest.c_str(), "--engine", "e"});
        const Outcome outcome = run_words(words, nobody_there());
        EXPECT_EQ(outcome.exit, verb.name == "version" ? kOk : kCannotConnect) << verb.name;
        // What was looked for; metrics have a socket of their own in the same place.
        EXPECT_TRUE(has(outcome.err,
                        verb.name == "metrics" ? "/nowhere/metrics.sock" : "/nowhere/marud.sock"))
            << outcome.err;
    }
}

TEST(MaructlVerbs, VersionNamesBoth) {
    FakeMarud marud([](const wire::Request &) { return std::nullopt; });
    const Outcome outcome = run_words({"version", "--json"}, marud.opener());
    EXPECT_EQ(outcome.exit, kOk);
    EXPECT_TRUE(has(outcome.out, "\"marud\":\"9.8.7\"}")) << outcome.out;
    EXPECT_TRUE(has(run_words({"version", "--json"}, nobody_there()).out, "\"marud\":null}"));
}

TEST(MaructlVerbs, BenchSaysWhatItMeasured) {
    FakeMarud marud([](const wire::Request &) { return wire::UsageReply{}; });
    const Outcome outcome = run_words({"bench", "--count", "20"}, marud.opener());
    EXPECT_EQ(outcome.exit, kOk) << outcome.err;
    EXPECT_TRUE(has(outcome.out, "round trip to marud")) << outcome.out;
    EXPECT_TRUE(has(outcome.out, "(20 usage requests)")) << outcome.out;
    EXPECT_TRUE(has(outcome.out, "memcpy in maructl")) << outcome.out;
}

TEST(MaructlVerbs, OutputThatCannotBeWrittenIsAFailure) {
    FakeMarud marud(list_namespaces);
    std::ostream broken(nullptr);  // every write fails
    std::ostringstream err;
    const char *words[] = {"namespace"};
    EXPECT_EQ(run(words, broken, err, marud.opener()), kFailed);
    EXPECT_TRUE(has(err.str(), "could not be written"));
}

}  // namespace
}  // namespace maru::maructl
