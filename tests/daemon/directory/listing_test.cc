// Listings and totals.
#include <set>

#include "tests/daemon/directory/fixture.h"

namespace maru {
namespace {

using wire::Status;

class ListingTest : public DirectoryTest {
  protected:
    PoolIndex pool = add_pool(kAnn, 0, wire::Scope::Worker, 400);
};

TEST_F(ListingTest, PagesListEveryReplicaOnceWhileOthersChange) {
    std::vector<wire::ReplicaName> names;
    for (uint64_t i = 0; i < 200; ++i)
        names.push_back(put(pool, key_of(i), i));
    std::set<wire::Id> seen;
    uint64_t cursor = 0;
    size_t turn = 0;
    do {
        std::vector<Directory::ReplicaView> page;
        cursor = directory.list_replicas(cursor, 0, 7, page);
        ASSERT_LE(page.size(), 7u);
        for (const Directory::ReplicaView &view : page)
            EXPECT_TRUE(seen.insert(view.name.replica).second);
        if (turn < 20) {  // the odd ones go while the list is read
            const wire::ReplicaName &gone = names[2 * turn + 1];
            directory.retire(gone, kAnn);
            directory.reclaim(gone, kAnn);
        }
        ++turn;
    } while (cursor);
    for (size_t i = 0; i < names.size(); ++i)
        EXPECT_TRUE(seen.count(names[i].replica) || (i < 40 && i % 2)) << i;
}

TEST_F(ListingTest, LongGapsEndInAnEmptyPageNotALongWalk) {
    NamespaceIndex rare = 0;
    ASSERT_EQ(directory.register_namespace(1000, "rare", &rare), Status::Ok);
    for (uint64_t i = 0; i < 20000; ++i)
        put(pool, key_of(i), i);
    const wire::CommitItem last = item(key_of(1), 20000);
    ASSERT_EQ(directory.commit(rare, pool, last).status, Status::Ok);
    std::vector<Directory::ReplicaView> rows;
    uint64_t cursor = 0;
    int calls = 0;
    do {
        cursor = directory.list_replicas(cursor, rare, 10, rows);
        ++calls;
    } while (cursor);
    EXPECT_GT(calls, 1);
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0].ns, rare);
    EXPECT_EQ(rows[0].key, key_of(1));
    EXPECT_EQ(rows[0].offset, 20000 * kPage);
}

TEST_F(ListingTest, CursorsFromAnywhereAreHarmless) {
    put(pool, key_of(1), 0);
    std::vector<Directory::ReplicaView> rows;
    std::vector<Directory::LeaseView> leases;
    for (const uint64_t cursor : {uint64_t{1}, uint64_t{5}, uint64_t{1} << 40, UINT64_MAX}) {
        EXPECT_EQ(directory.list_replicas(cursor, 0, 10, rows), 0u);
        EXPECT_EQ(directory.list_leases(cursor, 10, leases), 0u);
    }
    EXPECT_TRUE(rows.empty());
}

TEST_F(ListingTest, LeasesNameTheirHolders) {
    const wire::ReplicaName name = put(pool, key_of(1), 0);
    acquire(kAnn, 1);
    acquire(kAnn, 1);
    std::vector<Directory::LeaseView> rows;
    EXPECT_EQ(directory.list_leases(0, 10, rows), 0u);
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0].name.replica, name.replica);
    EXPECT_EQ(rows[0].name.generation, name.generation);
    EXPECT_EQ(rows[0].holder, kAnn);
    EXPECT_EQ(rows[0].pool, pool);
    EXPECT_EQ(rows[0].count, 2u);
    EXPECT_EQ(rows[0].since_s, 5u);
}

TEST_F(ListingTest, FindObjectShowsAllCopies) {
    put(pool, key_of(1), 0);
    put(add_pool(kBob), key_of(1), 0);
    std::vector<Directory::ReplicaView> rows;
    directory.find_object(ns, key_of(1), rows);
    EXPECT_EQ(rows.size(), 2u);
    directory.find_object(ns, key_of(2), rows);
    directory.find_object(ns + 1, key_of(1), rows);
    EXPECT_EQ(rows.size(), 2u);
}

TEST_F(ListingTest, NamespacesKeepTheirTextAndNumber) {
    NamespaceIndex other = 0;
    EXPECT_EQ(directory.register_namespace(1000, "", &other), Status::InvalidArgument);
    EXPECT_EQ(directory.register_namespace(1000, std::string(16 * 1024 + 1, 'x'), &other),
              Status::TooLarge);
    for (int i = 0; i < 100; ++i) {
        const std::string text = "text " + std::to_string(i);
        ASSERT_EQ(directory.register_namespace(1000, text, &other), Status::Ok);
        EXPECT_EQ(directory.namespace_text(other), text);
    }
    EXPECT_EQ(directory.namespace_text(ns), "model");
    EXPECT_TRUE(directory.namespace_exists(ns));
    EXPECT_FALSE(directory.namespace_exists(0));
    EXPECT_FALSE(directory.namespace_exists(102));
    EXPECT_EQ(directory.totals().namespaces, 101u);
}

}  // namespace
}  // namespace maru
