// Keys that a client chose so that they collide.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/integration/hostile/party.h"
#include "tests/integration/marud_fixture.h"

namespace maru::test {
namespace {

// Digests that all hash alike if the hash has no secret: its first product is 0 whatever the second
// word is. Four thousand of them would fill one chunk of the directory's table, and no key of
// anybody that falls there would be committed again.
TEST(Collisions, KeysChosenToCollideDoNot) {
    Marud marud;
    marud.start();
    Party party(std::make_unique<WireClient>(marud.socket()), 975, "collisions");
    ASSERT_TRUE(party.wire().hello());
    party.done(party.open(), "openSession");
    party.use_namespace();
    constexpr uint32_t kKeys = 4200;  // the table's chunk has 4,096 places
    party.make_pool(uint64_t{kKeys + 16} * kPageBytes);
    uint64_t known = 0x9e3779b97f4a7c15u;  // what splitmix64 makes of the seed 0
    known = (known ^ (known >> 30)) * 0xbf58476d1ce4e5b9u;
    known = (known ^ (known >> 27)) * 0x94d049bb133111ebu;
    const uint64_t first_word = 0 - (known ^ (known >> 31));
    std::vector<wire::CommitItem> items;
    for (uint32_t i = 0; i < kKeys; ++i) {
        wire::Digest digest;
        const uint64_t words[4] = {first_word, i, 0, 0};
        std::memcpy(digest.bytes.data(), words, sizeof words);
        items.push_back({{digest, 0, 0}, party.pool, i * kPageBytes, kObjectBytes, 1});
        if (items.size() < 1000 && i + 1 < kKeys)
            continue;
        const auto *reply = party.wire().ask<wire::CommitReply>(
            wire::CommitRequest{party.ns, party.next_op, items});
        ASSERT_TRUE(reply) << party.wire().message();
        for (const wire::CommitResult &result : reply->results)
            ASSERT_EQ(result.status, wire::Status::Ok) << "of the keys up to " << i;
        party.next_op += items.size();
        items.clear();
    }
}

}  // namespace
}  // namespace maru::test
