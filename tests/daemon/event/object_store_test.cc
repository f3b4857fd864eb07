#include "daemon/event/object_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "libmaru/wire/limits.h"
#include "tests/daemon/event/temp_dir.h"

namespace maru {
namespace {

using testing::HasSubstr;

constexpr wire::Id kPool = 0x7700000003;

// One of each kind, every field with a value of its own.
std::vector<ObjectRecord> sample() {
    wire::CommitItem item;
    for (size_t i = 0; i < item.key.digest.bytes.size(); ++i)
        item.key.digest.bytes[i] = static_cast<uint8_t>(200 - i);
    item.key.shard = 5;
    item.key.part = 6;
    item.pool = kPool;
    item.offset = (3ull << 32) + 8192;
    item.length = 98304;
    item.generation = (77ull << 40) + 9;
    return {
        RecordedNamespace{4, 1000, 98304, "model \n with \"text\" \xc3\xa4", "flat"},
        RecordedObject{4, item},
        RecordedRetirement{kPool, item.offset, item.generation},
        RecordedAdoption{{kPool, 2},
                         1000,
                         64 << 20,
                         128 << 20,
                         32 << 20,
                         65536,
                         true,
                         {26, UINT64_MAX},
                         "engine 1"},
        RecordedEnd{{kPool, UINT32_MAX}},
    };
}

std::string whole() { return format_objects_header("boot-1") + format_objects(sample()); }

std::string read_file(const std::string &path) {
    std::ifstream in(path, std::ios::binary);
    return (std::ostringstream() << in.rdbuf()).str();
}
void write_file(const std::string &path, const std::string &bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
}

TEST(ObjectRecord, ReadsBackWhatWasWritten) {
    const auto parsed = parse_objects(whole());
    ASSERT_TRUE(parsed) << describe(parsed.error());
    EXPECT_EQ(parsed->boot_id, "boot-1");
    EXPECT_FALSE(parsed->cut);
    ASSERT_EQ(parsed->records.size(), sample().size());
    const auto &ns = std::get<RecordedNamespace>(parsed->records[0]);
    EXPECT_EQ(ns.number, 4u);
    EXPECT_EQ(ns.uid, 1000u);
    EXPECT_EQ(ns.object_bytes, 98304u);
    EXPECT_EQ(ns.format, "flat");
    const auto &adopted = std::get<RecordedAdoption>(parsed->records[3]);
    EXPECT_EQ(adopted.segment, (SegmentRef{kPool, 2}));
    EXPECT_EQ(adopted.first_offset, 128u << 20);
    EXPECT_TRUE(adopted.huge);
    EXPECT_EQ(adopted.engine, "engine 1");
    EXPECT_EQ(std::get<RecordedObject>(parsed->records[1]).item.key.part, 6u);
    // Every field, told by its only bytes.
    EXPECT_EQ(format_objects(parsed->records), format_objects(sample()));
}

TEST(ObjectRecord, AnyFlippedBitIsFound) {
    const std::string good = whole();
    for (size_t bit = 0; bit < good.size() * 8; ++bit) {
        std::string bad = good;
        bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
        const auto parsed = parse_objects(bad);
        // Never taken for a record that a kill cut off: that one is believed.
        ASSERT_FALSE(parsed) << "bit " << bit;
        EXPECT_EQ(parsed.error().code, EBADMSG);
        EXPECT_THAT(parsed.error().message, HasSubstr("at byte "));
    }
}

TEST(ObjectRecord, WhatWasCutOffEndsBeforeTheFactThatIsNotWhole) {
    const std::string header = format_objects_header("boot-1");
    const std::string good = whole();
    std::vector<size_t> ends = {header.size()};
    for (const ObjectRecord &fact : sample())
        ends.push_back(ends.back() + format_objects({&fact, 1}).size());
    ASSERT_EQ(ends.back(), good.size());
    for (size_t length = header.size(); length <= good.size(); ++length) {
        const auto parsed = parse_objects(std::string_view(good).substr(0, length));
        ASSERT_TRUE(parsed) << length;
        const auto facts =
            static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), length) - ends.begin()) -
            1;
        EXPECT_EQ(parsed->records.size(), facts) << length;
        EXPECT_EQ(parsed->cut, length != ends[facts]) << length;
    }
    for (size_t length = 0; length < header.size(); ++length)
        EXPECT_FALSE(parse_objects(std::string_view(good).substr(0, length))) << length;
}

TEST(ObjectRecord, AMissingFactInTheMiddleIsSeenByItsHead) {
    std::string bytes = whole();
    bytes.erase(format_objects_header("boot-1").size() + 10, 5);
    EXPECT_FALSE(parse_objects(bytes));
}

TEST(ObjectRecord, AnAdoptionThatCannotBeIsNoFact) {
    const auto adoption = std::get<RecordedAdoption>(sample()[3]);
    const auto parses = [&](auto change) {
        RecordedAdoption bad = adoption;
        change(bad);
        const ObjectRecord fact = bad;
        return static_cast<bool>(
            parse_objects(format_objects_header("b") + format_objects({&fact, 1})));
    };
    EXPECT_TRUE(parses([](RecordedAdoption &) {}));
    EXPECT_FALSE(parses([](RecordedAdoption &fact) { fact.page_bytes = 0; }));
    EXPECT_FALSE(parses([](RecordedAdoption &fact) { fact.segment_bytes = 0; }));
    EXPECT_FALSE(parses([](RecordedAdoption &fact) { fact.bytes = 0; }));
    EXPECT_FALSE(parses([](RecordedAdoption &fact) { fact.bytes += 1; }));
    EXPECT_FALSE(parses([](RecordedAdoption &fact) { fact.first_offset = UINT64_MAX - 65536; }));
}

TEST(ObjectRecord, TheLongestFactThatMarudAcceptsIsReadBack) {
    const std::vector<ObjectRecord> longest = {
        RecordedNamespace{1, 1, 1, std::string(wire::kMaxNamespaceBytes, 'n'),
                          std::string(wire::kMaxFormatBytes, 'f')}};
    const auto parsed = parse_objects(format_objects_header("b") + format_objects(longest));
    ASSERT_TRUE(parsed) << describe(parsed.error());
    EXPECT_EQ(parsed->records.size(), 1u);
}

class ObjectStoreTest : public testing::Test {
  protected:
    TempDir dir_;
    const std::string path_ = dir_.path() + "/shared.objects";
    ObjectStore store(const std::string &boot = "boot-1") { return ObjectStore(dir_.path(), boot); }
    size_t loaded(const std::string &boot = "boot-1") {
        auto found = store(boot).load();
        EXPECT_EQ(found.problem, "");
        return found.records.size();
    }
};

TEST_F(ObjectStoreTest, TheNextLifeReadsWhatWasBegunAndAppended) {
    ObjectStore writer = store();
    EXPECT_EQ(loaded(), 0u);  // there is none
    const auto facts = sample();
    ASSERT_TRUE(writer.begin(std::span(facts).first(2)));
    ASSERT_TRUE(writer.append(std::span(facts).subspan(2, 1)));
    ASSERT_TRUE(writer.append(std::span(facts).subspan(3)));
    EXPECT_EQ(format_objects(store().load().records), format_objects(facts));
    EXPECT_EQ(read_file(path_), whole());
    EXPECT_EQ(std::filesystem::status(path_).permissions(), std::filesystem::perms(0600));
    EXPECT_FALSE(std::filesystem::exists(path_ + ".new"));
    // Begun anew: only what is said then.
    ASSERT_TRUE(store().begin(std::span(facts).first(1)));
    EXPECT_EQ(loaded(), 1u);
}

TEST_F(ObjectStoreTest, ARecordOfAnotherBootNamesMemoryThatIsGone) {
    ASSERT_TRUE(store().begin(sample()));
    EXPECT_EQ(loaded("boot-2"), 0u);
    EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(ObjectStoreTest, ADamagedRecordIsSetAsideWhole) {
    std::string bytes = whole();
    bytes[bytes.size() / 2] ^= 0x10;
    write_file(path_, bytes);
    const auto found = store().load();
    EXPECT_TRUE(found.records.empty());
    EXPECT_THAT(found.problem, HasSubstr("shared.objects' is set aside"));
    EXPECT_FALSE(std::filesystem::exists(path_));
    EXPECT_TRUE(std::filesystem::exists(path_ + ".damaged"));
    EXPECT_EQ(loaded(), 0u);
}

TEST_F(ObjectStoreTest, AFileThatOthersMayWriteIsNotBelieved) {
    write_file(path_, whole());
    ASSERT_EQ(::chmod(path_.c_str(), 0622), 0);
    EXPECT_THAT(store().load().problem, HasSubstr("nobody else may write"));
    EXPECT_EQ(loaded(), 0u);
    // Nor one that is somewhere else, or no file.
    write_file(dir_.path() + "/elsewhere", whole());
    ASSERT_EQ(::symlink((dir_.path() + "/elsewhere").c_str(), path_.c_str()), 0);
    const auto linked = store().load();
    EXPECT_TRUE(linked.records.empty());
    EXPECT_THAT(linked.problem, HasSubstr("open '"));
    EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(path_)));
    ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
    EXPECT_TRUE(store().load().records.empty());
}

// No file may grow beyond `bytes`, as on a file system that is full.
class FullDisk {
  public:
    explicit FullDisk(uint64_t bytes) {
        EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &old_), 0);
        const rlimit none = {bytes, old_.rlim_max};
        ::signal(SIGXFSZ, SIG_IGN);
        EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
    }
    ~FullDisk() { EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &old_), 0); }

  private:
    rlimit old_{};
};

TEST_F(ObjectStoreTest, WhatCannotBeAppendedTakesTheFileWithIt) {
    ObjectStore writer = store();
    const auto facts = sample();
    ASSERT_TRUE(writer.begin(std::span(facts).first(1)));
    EXPECT_FALSE(writer.failed());
    {
        FullDisk full(std::filesystem::file_size(path_) + 10);
        const auto added = writer.append(std::span(facts).subspan(1));
        ASSERT_FALSE(added);
        EXPECT_THAT(describe(added.error()), HasSubstr("shared.objects"));
    }
    // What is missing could have been a retirement: nothing is left to be believed.
    EXPECT_FALSE(std::filesystem::exists(path_));
    EXPECT_EQ(loaded(), 0u);
    // Said once; it is begun anew with all that is true.
    EXPECT_TRUE(writer.append(std::span(facts).first(1)));
    EXPECT_FALSE(std::filesystem::exists(path_));
    ASSERT_TRUE(writer.failed());
    EXPECT_FALSE(writer.wants_begin()) << "not in every turn";
    ASSERT_TRUE(writer.begin(facts));
    EXPECT_FALSE(writer.failed());
    EXPECT_EQ(loaded(), facts.size());
}

TEST_F(ObjectStoreTest, ARecordThatCannotBeBegunAnewGoesOnAsItIs) {
    ObjectStore writer = store();
    const auto facts = sample();
    ASSERT_TRUE(writer.begin(std::span(facts).first(2)));
    const std::vector<ObjectRecord> many(1000, facts[1]);
    {
        FullDisk full(4096);
        EXPECT_FALSE(writer.begin(many));
        EXPECT_TRUE(writer.failed());
        EXPECT_FALSE(std::filesystem::exists(path_ + ".new"));
        EXPECT_EQ(loaded(), 2u);
        ASSERT_TRUE(writer.append(std::span(facts).subspan(2)));
        EXPECT_FALSE(writer.begin(many));
    }
    EXPECT_EQ(format_objects(store().load().records), format_objects(facts));
    ASSERT_TRUE(writer.begin(many));
    EXPECT_FALSE(writer.failed());
    EXPECT_EQ(loaded(), many.size());
}

TEST_F(ObjectStoreTest, WhatIsAppendedDuringARewriteIsInBothFiles) {
    ObjectStore writer = store();
    const auto facts = sample();
    const auto one = [&](size_t i) { return std::span(facts).subspan(i, 1); };
    ASSERT_TRUE(writer.begin(one(0)));
    writer.begin_rewrite();
    ASSERT_TRUE(writer.rewrite(one(1)));
    ASSERT_TRUE(writer.append(one(2)));
    ASSERT_TRUE(writer.rewrite({}));
    ASSERT_TRUE(writer.rewrite(one(3)));
    EXPECT_TRUE(writer.rewriting());
    EXPECT_FALSE(writer.wants_begin());
    // Killed now: the old one, and what was appended.
    const auto joined = [&](std::initializer_list<size_t> numbers) {
        std::string bytes;
        for (const size_t number : numbers)
            bytes += format_objects(one(number));
        return bytes;
    };
    EXPECT_EQ(format_objects(store().load().records), joined({0, 2}));
    ASSERT_TRUE(writer.end_rewrite());
    EXPECT_EQ(format_objects(store().load().records), joined({1, 2, 3}));
    ASSERT_TRUE(writer.append(one(4)));
    EXPECT_EQ(format_objects(store().load().records), joined({1, 2, 3, 4}));
    // The new one cannot be written: said at the next piece, and nothing of the old one is lost.
    writer.begin_rewrite();
    ASSERT_TRUE(writer.rewrite(one(1)));
    {
        FullDisk full(std::filesystem::file_size(path_ + ".new"));
        EXPECT_FALSE(writer.rewrite(one(2)));
        EXPECT_FALSE(writer.rewriting());
        EXPECT_TRUE(writer.failed());
    }
    EXPECT_FALSE(std::filesystem::exists(path_ + ".new"));
    EXPECT_EQ(format_objects(store().load().records), joined({1, 2, 3, 4}));
    // The old one cannot be appended to, the new one can.
    writer.begin_rewrite();
    ASSERT_TRUE(writer.rewrite(one(0)));
    {
        FullDisk full(std::filesystem::file_size(path_));
        EXPECT_FALSE(writer.append(one(2)));
    }
    EXPECT_FALSE(std::filesystem::exists(path_));
    ASSERT_TRUE(writer.end_rewrite());
    EXPECT_EQ(format_objects(store().load().records), joined({0, 2}));
    EXPECT_FALSE(writer.failed());
}

TEST_F(ObjectStoreTest, AnOldRecordIsReplacedOrGoneWhenItCannotBeBegun) {
    ASSERT_TRUE(store().begin(sample()));
    std::filesystem::create_directory(path_ + ".new");  // in the way
    ObjectStore next = store();
    EXPECT_FALSE(next.begin(sample()));
    EXPECT_FALSE(std::filesystem::exists(path_));
    EXPECT_TRUE(next.failed()) << "also if nothing is appended";
    EXPECT_FALSE(next.wants_begin());
    // In the way of the first one, too.
    ObjectStore first = store();
    EXPECT_FALSE(first.append(sample()));
    EXPECT_TRUE(first.failed());
    std::filesystem::remove(path_ + ".new");
    EXPECT_TRUE(first.begin(sample()));
    EXPECT_FALSE(first.failed());
}

TEST_F(ObjectStoreTest, NothingToRecordIsNoFile) {
    ASSERT_TRUE(store().begin(sample()));
    ObjectStore writer = store();
    ASSERT_TRUE(writer.begin({}));
    EXPECT_FALSE(std::filesystem::exists(path_));
    EXPECT_FALSE(writer.wants_begin());
    ASSERT_TRUE(writer.append(sample()));
    EXPECT_EQ(read_file(path_), whole());
    EXPECT_FALSE(writer.wants_begin());
}

TEST_F(ObjectStoreTest, ItIsBegunAnewWhenMostOfItIsOvertaken) {
    ObjectStore writer = store();
    ASSERT_TRUE(writer.begin({}));
    const auto facts = sample();
    std::vector<ObjectRecord> many(10'000, facts[1]);
    const uint64_t bytes = format_objects(many).size();
    uint64_t appended = 0;
    while (!writer.wants_begin() && appended < (64u << 20)) {
        ASSERT_TRUE(writer.append(many));
        appended += bytes;
    }
    EXPECT_GE(appended, 4u << 20);  // not for a small one
    EXPECT_LT(appended, (4u << 20) + 2 * bytes);
    // Once: not while it is done, and not in every turn when it has failed.
    writer.begin_rewrite();
    EXPECT_FALSE(writer.wants_begin());
    {
        FullDisk full(4096);
        EXPECT_FALSE(writer.rewrite(many));
        EXPECT_TRUE(writer.failed());
        EXPECT_FALSE(writer.wants_begin());
    }
    ASSERT_TRUE(writer.begin(many));
    EXPECT_FALSE(writer.wants_begin());
    EXPECT_EQ(loaded(), many.size());
    // A long one may grow by twice its length.
    many.resize(4 * many.size(), facts[1]);
    ASSERT_TRUE(writer.begin(many));
    ASSERT_TRUE(writer.append(many));
    ASSERT_TRUE(writer.append(many));
    EXPECT_FALSE(writer.wants_begin());
    ASSERT_TRUE(writer.append(many));
    EXPECT_TRUE(writer.wants_begin());
}

}  // namespace
}  // namespace maru
