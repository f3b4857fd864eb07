// The list of metrics as a whole: well formed, readable, and closed.
#include "daemon/metrics/families.h"

#include <gtest/gtest.h>

#include <set>

#include "daemon/metrics/exposition.h"
#include "libmaru/wire/codec.h"

namespace maru::metrics {
namespace {

struct All {
    ServiceTally service;
    ServiceGauges gauges;
    HostTally host;
    HostGauges host_gauges;
    ScrapeTally scrapes;
    ProcessFacts process;
    Registry registry;

    All() {
        add_families(registry, {service, gauges, host, host_gauges, scrapes, process}, "1.2.3");
    }
    std::string text() {
        std::string out;
        registry.render(Format::Text, &out);
        return out;
    }
};

TEST(Families, EachIsWellFormedAndReadsBack) {
    All all;
    for (const Family &family : all.registry.families())
        EXPECT_EQ(problem_of(family), "");
    const std::string text = all.text();
    auto read = read_exposition(text);
    ASSERT_TRUE(read.ok()) << read.error().message;
    ASSERT_EQ(read->size(), all.registry.families().size());
    size_t samples = 0;
    for (size_t i = 0; i < read->size(); ++i) {
        const ReadFamily &family = (*read)[i];
        EXPECT_EQ(family.name, all.registry.families()[i].name);
        EXPECT_EQ(family.help, all.registry.families()[i].help);
        EXPECT_EQ(family.help.back(), '.') << family.name;
        EXPECT_TRUE(family.name.substr(0, 5) == "maru_" || family.name.substr(0, 8) == "process_")
            << family.name;
        samples += family.samples.size();
    }
    EXPECT_EQ(samples, all.registry.samples());
}

TEST(Families, LabelValuesAreWordsThatTheCodeKnows) {
    All all;
    const std::string text = all.text();
    auto read = read_exposition(text);
    ASSERT_TRUE(read.ok());
    for (const ReadFamily &family : *read)
        for (const ReadSample &sample : family.samples)
            for (const auto &[label, value] : sample.labels) {
                // Names of people, sessions, keys and places have other letters.
                if (label == "le" || label == "version")
                    continue;
                for (char c : value)
                    EXPECT_TRUE((c >= 'a' && c <= 'z') || c == '_' || (c >= '0' && c <= '9'))
                        << sample.line;
                for (const char *forbidden :
                     {"uid", "pid", "session", "engine", "namespace", "key", "pool", "epoch"})
                    EXPECT_NE(label, forbidden) << sample.line;
            }
}

TEST(Families, ThereIsASeriesForEveryRequestAndEveryStatus) {
    All all;
    for (size_t kind = 0; kind < kRequestKinds; ++kind)
        for (size_t result = 0; result < kOutcomes; ++result)
            all.service.requests[kind][result] = 1000 * (kind + 1) + result;
    const std::string text = all.text();
    for (size_t kind = 0; kind + 1 < kRequestKinds; ++kind)
        for (size_t result = 0; result < kOutcomes; ++result) {
            std::string line = std::string("\nmaru_requests_total{request=\"") +
                               wire::request_kind_name(kind) + "\",result=\"" +
                               kOutcomeNames[result] + "\"} " +
                               std::to_string(1000 * (kind + 1) + result) + "\n";
            EXPECT_NE(text.find(line), std::string::npos) << line;
        }
    EXPECT_NE(text.find("request=\"malformed\",result=\"invalid\""), std::string::npos);
    EXPECT_NE(text.find("maru_refusals_total{status=\"stale_epoch\"} 0"), std::string::npos);
    EXPECT_EQ(text.find("status=\"ok\""), std::string::npos);
}

TEST(Families, NumbersOfAScrapeNeverChangeTheSetOfSeries) {
    All all;
    auto names = [&] {
        const std::string text = all.text();
        std::multiset<std::string> lines;
        auto read = read_exposition(text);
        EXPECT_TRUE(read.ok());
        for (const ReadFamily &family : *read)
            for (const ReadSample &sample : family.samples)
                lines.emplace(sample.line.substr(0, sample.line.size() - sample.value.size()));
        return lines;
    };
    const auto before = names();
    EXPECT_EQ(std::set<std::string>(before.begin(), before.end()).size(), before.size());
    all.service.commits.add(wire::Status::Ok);
    all.service.commits.add(wire::Status::Internal);
    all.host.turns.observe(1'000'000);
    all.gauges.sessions[0][0] = 1000;
    EXPECT_EQ(names(), before);
    EXPECT_NE(all.text().find("maru_commits_total{result=\"other\"} 1\n"), std::string::npos)
        << "what nobody expected is counted as well";
}

TEST(Tally, EveryRequestIsOfAFamilyAndEveryStatusOfAResult) {
    EXPECT_EQ(kRequestClassOf[wire::RequestBody(wire::ProbeRequest{}).index()],
              RequestClass::Probe);
    EXPECT_EQ(kRequestClassOf[wire::RequestBody(wire::ReclaimAckRequest{}).index()],
              RequestClass::Release);
    EXPECT_EQ(kRequestClassOf[wire::RequestBody(wire::StatusRequest{}).index()],
              RequestClass::Admin);
    EXPECT_EQ(kRequestClassOf[wire::RequestBody(wire::HeartbeatRequest{}).index()],
              RequestClass::Session);
    EXPECT_EQ(outcome_of(wire::Status::Ok), Outcome::Ok);
    EXPECT_EQ(outcome_of(wire::Status::Internal), Outcome::Failed);
    for (size_t i = 1; i + 1 < kStatuses; ++i)
        EXPECT_NE(outcome_of(static_cast<wire::Status>(i)), Outcome::Failed)
            << wire::status_name(static_cast<wire::Status>(i));
    EXPECT_EQ(placement_of(wire::Medium::Cpu, wire::Tier::L1, wire::Scope::Worker), 0u);
    EXPECT_EQ(placement_of(wire::Medium::Ssd, wire::Tier::L1, wire::Scope::Worker), SIZE_MAX);
}

}  // namespace
}  // namespace maru::metrics
