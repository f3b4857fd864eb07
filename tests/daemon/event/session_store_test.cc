#include "daemon/event/session_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <sstream>

#include "tests/daemon/event/temp_dir.h"

namespace maru {
namespace {

SessionRecord sample() {
    SessionRecord record;
    record.epoch = 0xdeadbeef;
    for (size_t i = 0; i < 32; ++i)
        record.token_hash[i] = static_cast<uint8_t>(255 - i);
    record.session = wire::make_id(0xdeadbeef, 17);
    record.uid = 1000;
    record.pid = 4242;
    record.start_time = 123456789;
    record.role = wire::Role::Worker;
    record.engine = "engine with spaces\nand \"more\" \xc3\xa4";
    record.client_name = "";
    record.command = "python3";
    record.fenced = true;
    record.reads_shared = false;
    SessionRecord::Pool pool;
    pool.pool = wire::make_id(0xdeadbeef, 3);
    pool.capacity_bytes = (1ull << 30) + 4096;
    pool.segment_bytes = 256 << 20;
    pool.page_bytes = 65536;
    pool.huge_pages = wire::HugePages::Try;
    pool.numa = wire::Numa::Strict;
    pool.numa_node = -1;
    pool.asked_bytes = 1ull << 30;
    pool.request_key = UINT64_MAX;
    pool.first_generation = 77;
    pool.segments.resize(5);
    pool.segments[0] = {true, true, false, {26, 1001}};
    pool.segments[1] = {true, false, true, {26, UINT64_MAX}};
    record.pools.push_back(pool);
    pool.pool = wire::make_id(0xdeadbeef, 4);
    pool.numa_node = 3;
    pool.segments.clear();
    record.pools.push_back(pool);
    return record;
}

TEST(SessionRecord, ReadsBackWhatWasWritten) {
    SessionRecord in = sample();
    std::string text = format_record(in, "boot-1");
    auto parsed = parse_record(text);
    ASSERT_TRUE(parsed) << describe(parsed.error());
    EXPECT_EQ(parsed->boot_id, "boot-1");
    const SessionRecord &out = parsed->record;
    EXPECT_EQ(out.epoch, in.epoch);
    EXPECT_EQ(out.token_hash, in.token_hash);
    EXPECT_EQ(out.session, in.session);
    EXPECT_EQ(out.uid, in.uid);
    EXPECT_EQ(out.pid, in.pid);
    EXPECT_EQ(out.start_time, in.start_time);
    EXPECT_EQ(out.role, in.role);
    EXPECT_EQ(out.engine, in.engine);
    EXPECT_EQ(out.client_name, in.client_name);
    EXPECT_EQ(out.command, in.command);
    EXPECT_EQ(out.fenced, in.fenced);
    EXPECT_EQ(out.reads_shared, in.reads_shared);
    ASSERT_EQ(out.pools.size(), 2u);
    EXPECT_EQ(out.pools[0].numa_node, -1);
    EXPECT_EQ(out.pools[1].numa_node, 3);
    EXPECT_EQ(out.pools[0].request_key, UINT64_MAX);
    ASSERT_EQ(out.pools[0].segments.size(), 5u);
    EXPECT_TRUE(out.pools[0].segments[0].sealed);
    EXPECT_TRUE(out.pools[0].segments[1].huge);
    EXPECT_EQ(out.pools[0].segments[1].identity, in.pools[0].segments[1].identity);
    EXPECT_FALSE(out.pools[0].segments[2].created);
    // Every field, told by its only text.
    EXPECT_EQ(format_record(out, "boot-1"), text);
}

TEST(SessionRecord, NoTruncationIsTakenForARecord) {
    std::string text = format_record(sample(), "boot-1");
    for (size_t length = 0; length < text.size(); ++length) {
        auto parsed = parse_record(std::string_view(text).substr(0, length));
        ASSERT_FALSE(parsed) << length;
        EXPECT_EQ(parsed.error().code, EBADMSG);
    }
    EXPECT_FALSE(parse_record(text + "x"));
    EXPECT_FALSE(parse_record(text + text));
}

TEST(SessionRecord, NoFlippedBitIsTakenForARecord) {
    std::string text = format_record(sample(), "boot-1");
    for (size_t i = 0; i < text.size(); ++i)
        for (int bit = 0; bit < 8; ++bit) {
            std::string bad = text;
            bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
            ASSERT_FALSE(parse_record(bad)) << "byte " << i << " bit " << bit;
        }
}

TEST(SessionRecord, AnotherVersionWithAGoodChecksumIsRefusedByItsLine) {
    // As format_record ends it, over any body.
    auto sealed = [](const std::string &body) {
        uint64_t hash = 0xcbf29ce484222325;
        for (char c : body)
            hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
        return body + "end " + std::to_string(hash) + "\n";
    };
    std::string text = format_record(sample(), "boot-1");
    std::string body = text.substr(0, text.rfind("end "));
    ASSERT_EQ(sealed(body), text);
    const std::pair<std::string, std::string> kChanges[] = {
        {"maru-session 1", "maru-session 2"},
        {"fenced 1", "fenced 2"},
        {"reads 0", "reads 2"},
        {"uid 1000", "uid 01000"},
        {"uid 1000", "uid -1"},
        {"role 0", "role 7"},
        {"pools 2", "pools 3"},
        {"pools 2", "pools 1"},
        {"pid 4242", "pid 4294967296"},
        {"token ff", "token f"},
        {"engine ", "engines "},
        {"start 123456789", "start"},
    };
    for (const auto &[from, to] : kChanges) {
        std::string bad = body;
        size_t at = bad.find(from);
        ASSERT_NE(at, std::string::npos) << from;
        bad.replace(at, from.size(), to);
        auto parsed = parse_record(sealed(bad));
        ASSERT_FALSE(parsed) << to;
        EXPECT_THAT(parsed.error().message, testing::HasSubstr("line ")) << to;
    }
}

TEST(SessionStore, KeepsRecordsOfThisBootAndDropsOthers) {
    TempDir dir;
    SessionRecord first = sample(), second = sample();
    second.session = wire::make_id(0xdeadbeef, 18);
    {
        auto store = SessionStore::open(dir.path(), "boot-1");
        ASSERT_TRUE(store);
        ASSERT_TRUE(store->save(first));
        ASSERT_TRUE(store->save(second));
        first.fenced = false;
        ASSERT_TRUE(store->save(first)) << "replaced";
    }
    auto store = SessionStore::open(dir.path(), "boot-1");
    ASSERT_TRUE(store);
    int progress = 0;
    auto loaded = *store->load([&] { ++progress; });
    ASSERT_EQ(loaded.records.size(), 2u);
    EXPECT_EQ(progress, 2);
    EXPECT_EQ(loaded.records[0].session, first.session);
    EXPECT_FALSE(loaded.records[0].fenced);
    store->remove(first.session);
    EXPECT_EQ(store->load([] {})->records.size(), 1u);

    auto next_boot = SessionStore::open(dir.path(), "boot-2");
    auto none = *next_boot->load([] {});
    EXPECT_TRUE(none.records.empty());
    EXPECT_EQ(none.other_boot, 1u);
    EXPECT_TRUE(next_boot->load([] {})->records.empty());
    EXPECT_TRUE(std::filesystem::is_empty(dir / "sessions"));
}

TEST(SessionStore, FilesAreOursAlone) {
    TempDir dir;
    auto store = SessionStore::open(dir.path(), "b");
    ASSERT_TRUE(store && store->save(sample()));
    struct stat info = {};
    ASSERT_EQ(::stat((dir / "sessions").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0700u);
    for (const auto &entry : std::filesystem::directory_iterator(dir / "sessions")) {
        ASSERT_EQ(::stat(entry.path().c_str(), &info), 0);
        EXPECT_EQ(info.st_mode & 07777, 0600u);
    }
    ASSERT_EQ(::chmod((dir / "sessions").c_str(), 0777), 0);
    auto open_to_all = SessionStore::open(dir.path(), "b");
    ASSERT_FALSE(open_to_all);
    EXPECT_EQ(open_to_all.error().code, EPERM);
}

TEST(SessionStore, ADamagedFileIsSetAsideAndTheOthersAreTaken) {
    TempDir dir;
    auto store = SessionStore::open(dir.path(), "b");
    SessionRecord first = sample(), second = sample();
    second.session = wire::make_id(0xdeadbeef, 18);
    ASSERT_TRUE(store->save(first) && store->save(second));
    const std::string sessions = dir / "sessions";
    std::string damaged;
    for (const auto &entry : std::filesystem::directory_iterator(sessions))
        if (entry.path().string().find("11.session") != std::string::npos)
            damaged = entry.path();
    ASSERT_FALSE(damaged.empty());
    std::filesystem::resize_file(damaged, 40);
    // A record under another's name would be removed with that one's session.
    std::filesystem::copy_file(sessions + "/deadbeef00000012.session",
                               sessions + "/deadbeef00000099.session");
    std::ofstream(sessions + "/deadbeef00000012.session.new") << "cut short";
    std::filesystem::create_symlink("/dev/zero", sessions + "/deadbeef00000098.session");
    auto loaded = *store->load([] {});
    ASSERT_EQ(loaded.records.size(), 1u);
    EXPECT_EQ(loaded.records[0].session, second.session);
    EXPECT_EQ(loaded.problems.size(), 3u) << testing::PrintToString(loaded.problems);
    EXPECT_TRUE(std::filesystem::exists(damaged + ".damaged"));
    EXPECT_FALSE(std::filesystem::exists(sessions + "/deadbeef00000012.session.new"));
    EXPECT_TRUE(store->load([] {})->problems.empty()) << "told once";
}

// What cannot be listed is not what is not there: to start without it would forget whose memory is
// mapped.
TEST(SessionStore, RecordsThatCannotBeListedAreAnError) {
    TempDir dir;
    auto store = SessionStore::open(dir.path(), "b");
    ASSERT_TRUE(store->save(sample()));
    std::filesystem::rename(dir / "sessions", dir / "elsewhere");
    std::ofstream(dir / "sessions") << "not a directory";
    auto loaded = store->load([] {});
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().code, ENOTDIR);
    EXPECT_NE(loaded.error().message.find(dir / "sessions"), std::string::npos)
        << loaded.error().message;
    std::filesystem::remove(dir / "sessions");
    std::filesystem::rename(dir / "elsewhere", dir / "sessions");
    EXPECT_EQ(store->load([] {})->records.size(), 1u);
}

TEST(SessionStore, BootIdIsTheKernels) { EXPECT_EQ(read_boot_id().size(), 36u); }

}  // namespace
}  // namespace maru
