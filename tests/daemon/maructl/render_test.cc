#include "daemon/maructl/render.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "tests/libmaru/wire/members.h"

namespace maru::maructl {
namespace {

TEST(Table, AlignsByCharactersNotBytes) {
    Table table;
    table.add_column("NAME", Align::Left);
    table.add_column("SIZE", Align::Right);
    table.add_row({"\xc3\xa4\xc3\xb6\xc3\xbc", "1 B"});
    table.add_row({"abcdef", "10 KiB"});
    std::ostringstream out;
    table.flush(out);
    EXPECT_EQ(out.str(),
              "NAME      SIZE\n"
              "\xc3\xa4\xc3\xb6\xc3\xbc        1 B\n"
              "abcdef  10 KiB\n");
    table.add_row({"b", "2 B"});  // no second title, the same widths
    table.flush(out);
    EXPECT_EQ(out.str().substr(out.str().rfind("b ")), "b          2 B\n");
}

TEST(Printable, KeepsTerminalsSafeAndCellsShort) {
    EXPECT_EQ(printable("plain \xc3\xa4", 72), "plain \xc3\xa4");
    EXPECT_EQ(printable("\x1b[31mred\n\x7f\xc2\x9b", 72), "\\x1b[31mred\\x0a\\x7f\\x9b");
    EXPECT_EQ(printable("abcdefghij", 10), "abcdefghij");
    EXPECT_EQ(printable("abcdefghijk", 10), "abcdefg...");
    EXPECT_EQ(printable("abcdefgh\xc3\xa4\xc3\xa4k", 10), "abcdefg...");
}

TEST(Json, EscapesAndSeparates) {
    std::ostringstream out;
    JsonWriter json(out);
    json.begin_object();
    json.key("a\"b");
    json.text("x\\\n\x01\xc3\xa4");
    json.key("list");
    json.begin_array();
    json.number(UINT64_MAX);
    json.signed_number(-1);
    json.flag(true);
    json.null();
    json.begin_object();
    json.end_object();
    json.end_array();
    json.key("real");
    json.real(1.005e3);
    json.end_object();
    EXPECT_EQ(out.str(),
              "{\"a\\\"b\":\"x\\\\\\u000a\\u0001\xc3\xa4\","
              "\"list\":[18446744073709551615,-1,true,null,{}],\"real\":1005.00}\n");
}

wire::LeaseRow a_lease() {
    wire::LeaseRow row;
    row.replica = wire::make_id(0xab, 5);
    row.session = wire::make_id(0xab, 2);
    row.pool = wire::make_id(0xab, 3);
    row.generation = 9;
    row.count = 2;
    row.age_ms = 303'000;
    row.uid = 1000;
    row.pid = 4711;
    row.command = "vllm\x1b[2J";
    row.engine = "engine-a";
    return row;
}

TEST(Render, ALeaseNamesItsHolder) {
    Table table = make_table<wire::LeaseRow>();
    add_row(table, a_lease());
    std::ostringstream out;
    table.flush(out);
    EXPECT_EQ(out.str(),
              "REPLICA       GENERATION  POOL          COUNT    AGE  SESSION       ENGINE     PID  "
              " UID  COMMAND\n"
              "0xab00000005           9  0xab00000003      2  5m 3s  0xab00000002  engine-a  4711  "
              "1000  vllm\\x1b[2J\n");
}

TEST(Render, ExactNumbersOnRequest) {
    const Cell bytes{Cell::Form::Bytes, 3ull << 29}, age{Cell::Form::Milliseconds, 303'000};
    EXPECT_EQ(shown(bytes), "1.5 GiB");
    EXPECT_EQ(shown(bytes, true), "1610612736");
    EXPECT_EQ(shown(age), "5m 3s");
    EXPECT_EQ(shown(age, true), "303000");
    EXPECT_EQ(shown({Cell::Form::Id, 0xab}, true), "0xab");
}

TEST(Render, ALeaseAsJson) {
    std::ostringstream out;
    JsonWriter json(out);
    write_object(json, a_lease());
    EXPECT_EQ(
        out.str(),
        "{\"replica\":\"0xab00000005\",\"generation\":9,\"pool\":\"0xab00000003\",\"count\":2,"
        "\"age_ms\":303000,\"session\":\"0xab00000002\",\"engine\":\"engine-a\",\"pid\":4711,"
        "\"uid\":1000,\"command\":\"vllm\\u001b[2J\"}\n");
}

// The keys are an interface: each new field of a row gets one, none appears twice.
template <typename Row>
void expect_keys(size_t more_than_members) {
    std::set<std::string> keys;
    for (const auto &column : columns(Row{})) {
        EXPECT_TRUE(keys.insert(column.key).second) << column.key;
        EXPECT_EQ(column.get(Row{}).form, column.form) << column.key;
    }
    EXPECT_EQ(keys.size(), wire::test::kMembers<Row> + more_than_members);
}

TEST(Render, EveryFieldOfARowHasAKeyOfItsOwn) {
    constexpr size_t kUsage = wire::test::kMembers<wire::Usage> - 1;  // flat instead of one member
    expect_keys<wire::SessionRow>(0);
    expect_keys<wire::PoolRow>(kUsage);
    expect_keys<wire::NamespaceRow>(0);
    expect_keys<wire::ObjectRow>(3);  // the key, and digest, shard and part
    expect_keys<wire::LeaseRow>(0);
    expect_keys<wire::ExplainRow>(0);
    expect_keys<wire::StatusReply>(kUsage - 2);  // replicas and leases are told once
    expect_keys<wire::UsageReply>(kUsage);
}

TEST(Render, AnEmptyTableStillHasItsTitles) {
    Table table = make_table<wire::NamespaceRow>();
    std::ostringstream out;
    table.flush(out);
    EXPECT_EQ(out.str(), "NAMESPACE  OBJECTS  REPLICAS  OBJECT  UID  TEXT\n");
}

}  // namespace
}  // namespace maru::maructl
