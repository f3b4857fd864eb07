// The text of a record: a line per fact in a fixed order, numbers in a fixed form, a checksum last.
// Strict in reading, because what it says is believed: there is one way to write each record.

#include <cerrno>
#include <charconv>
#include <cstdio>

#include "daemon/event/session_store.h"

namespace maru {
namespace {

constexpr char kMagic[] = "maru-session 1";
constexpr size_t kMaxPools = 4096, kMaxSegments = 1 << 20;

// Not against people (the directory is ours alone), against torn and flipped bits: FNV-1a changes
// with any one of them.
uint64_t checksum(std::string_view text) {
    uint64_t hash = 0xcbf29ce484222325;
    for (char c : text) {
        hash ^= static_cast<unsigned char>(c);
        hash *= 0x100000001b3;
    }
    return hash;
}

std::string hex(std::string_view bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string out;
    for (char c : bytes) {
        out += kDigits[static_cast<unsigned char>(c) >> 4];
        out += kDigits[static_cast<unsigned char>(c) & 15];
    }
    return out.empty() ? "-" : out;
}

class Writer {
  public:
    void word(std::string_view text) {
        if (!out_.empty() && out_.back() != '\n')
            out_ += ' ';
        out_ += text;
    }
    template <typename T>
    void number(T value) {
        word(std::to_string(value));
    }
    void end_line() { out_ += '\n'; }
    std::string &text() { return out_; }

  private:
    std::string out_;
};

// Reads words and numbers of one record; the first thing that is not as it must be sets the error,
// and everything after it reads as zero.
class Reader {
  public:
    explicit Reader(std::string_view text) : rest_(text) {}
    bool ok() const { return error_.empty(); }
    const std::string &error() const { return error_; }
    void fail(const std::string &why) {
        if (error_.empty())
            error_ = "line " + std::to_string(line_) + ": " + why;
    }

    void expect(std::string_view word) {
        if (take() != word)
            fail("'" + std::string(word) + "' expected");
    }
    std::string_view word() { return take(); }
    template <typename T>
    T number(uint64_t max) {
        std::string_view text = take();
        uint64_t value = 0;
        auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (bad != std::errc() || end != text.data() + text.size() || value > max ||
            std::to_string(value) != text) {
            fail("a number up to " + std::to_string(max) + " expected");
            return T();
        }
        return static_cast<T>(value);
    }
    std::string bytes(size_t max) {
        std::string_view text = take();
        std::string out;
        if (text == "-")
            return out;
        if (text.empty() || text.size() % 2 != 0 || text.size() / 2 > max) {
            fail("up to " + std::to_string(max) + " bytes in hexadecimal expected");
            return out;
        }
        for (size_t i = 0; i < text.size(); i += 2) {
            int high = digit(text[i]), low = digit(text[i + 1]);
            if (high < 0 || low < 0) {
                fail("hexadecimal digits expected");
                return out;
            }
            out += static_cast<char>(high * 16 + low);
        }
        return out;
    }
    void end_line() {
        if (!ok())
            return;
        if (rest_.empty() || rest_[0] != '\n')
            return fail("end of line expected");
        rest_.remove_prefix(1);
        ++line_;
        first_ = true;
    }
    bool at_end() const { return rest_.empty(); }
    bool next_is(std::string_view word) const {
        return ok() && first_ && rest_.substr(0, rest_.find_first_of(" \n")) == word;
    }

  private:
    static int digit(char c) {
        return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    }
    std::string_view take() {
        if (!ok())
            return {};
        if (!first_) {
            if (rest_.empty() || rest_[0] != ' ') {
                fail("another word expected");
                return {};
            }
            rest_.remove_prefix(1);
        }
        first_ = false;
        size_t end = std::min(rest_.find_first_of(" \n"), rest_.size());
        std::string_view word = rest_.substr(0, end);
        rest_.remove_prefix(end);
        if (word.empty())
            fail("a word expected");
        return word;
    }

    std::string_view rest_;
    std::string error_;
    size_t line_ = 1;
    bool first_ = true;
};

void write_pool(Writer &out, const SessionRecord::Pool &pool) {
    out.word("pool");
    out.number(pool.pool);
    out.number(static_cast<uint32_t>(pool.medium));
    out.number(static_cast<uint32_t>(pool.scope));
    out.number(pool.capacity_bytes);
    out.number(pool.segment_bytes);
    out.number(pool.page_bytes);
    out.number(static_cast<uint32_t>(pool.huge_pages));
    out.number(static_cast<uint32_t>(pool.numa));
    out.number(static_cast<uint64_t>(static_cast<int64_t>(pool.numa_node) + 1));
    out.number(pool.asked_bytes);
    out.number(pool.request_key);
    out.number(pool.first_generation);
    out.number(pool.segments.size());
    out.end_line();
    for (const SessionRecord::Segment &segment : pool.segments) {
        out.word("segment");
        out.number(segment.created ? 1 : 0);
        out.number(segment.sealed ? 1 : 0);
        out.number(segment.huge ? 1 : 0);
        out.number(segment.identity.device);
        out.number(segment.identity.inode);
        out.end_line();
    }
}

SessionRecord::Pool read_pool(Reader &in) {
    SessionRecord::Pool pool;
    in.expect("pool");
    pool.pool = in.number<wire::Id>(UINT64_MAX);
    pool.medium = in.number<wire::Medium>(2);
    pool.scope = in.number<wire::Scope>(2);
    pool.capacity_bytes = in.number<uint64_t>(UINT64_MAX);
    pool.segment_bytes = in.number<uint64_t>(UINT64_MAX);
    pool.page_bytes = in.number<uint32_t>(UINT32_MAX);
    pool.huge_pages = in.number<wire::HugePages>(2);
    pool.numa = in.number<wire::Numa>(2);
    pool.numa_node = static_cast<int32_t>(in.number<int64_t>(INT32_MAX) - 1);
    pool.asked_bytes = in.number<uint64_t>(UINT64_MAX);
    pool.request_key = in.number<uint64_t>(UINT64_MAX);
    pool.first_generation = in.number<uint64_t>(UINT64_MAX);
    auto count = in.number<size_t>(kMaxSegments);
    in.end_line();
    for (size_t i = 0; i < count && in.ok(); ++i) {
        SessionRecord::Segment segment;
        in.expect("segment");
        segment.created = in.number<int>(1) == 1;
        segment.sealed = in.number<int>(1) == 1;
        segment.huge = in.number<int>(1) == 1;
        segment.identity.device = in.number<uint64_t>(UINT64_MAX);
        segment.identity.inode = in.number<uint64_t>(UINT64_MAX);
        in.end_line();
        pool.segments.push_back(segment);
    }
    return pool;
}

}  // namespace

std::string format_record(const SessionRecord &record, const std::string &boot_id) {
    Writer out;
    auto line = [&](const char *name, const std::string &value) {
        out.word(name);
        out.word(value);
        out.end_line();
    };
    out.text() = std::string(kMagic) + "\n";
    line("boot", boot_id);
    line("epoch", std::to_string(record.epoch));
    line("token", hex({reinterpret_cast<const char *>(record.token_hash.data()), 32}));
    line("session", std::to_string(record.session));
    line("uid", std::to_string(record.uid));
    line("pid", std::to_string(record.pid));
    line("start", std::to_string(record.start_time));
    line("role", std::to_string(static_cast<uint32_t>(record.role)));
    line("engine", hex(record.engine));
    line("client", hex(record.client_name));
    line("command", hex(record.command));
    line("fenced", record.fenced ? "1" : "0");
    line("reads", record.reads_shared ? "1" : "0");
    line("pools", std::to_string(record.pools.size()));
    for (const SessionRecord::Pool &pool : record.pools)
        write_pool(out, pool);
    std::string sum = std::to_string(checksum(out.text()));
    line("end", sum);
    return std::move(out.text());
}

Result<ParsedRecord> parse_record(std::string_view text) {
    auto damaged = [](const std::string &why) { return Error{EBADMSG, "session record: " + why}; };
    // The checksum first: after it, what does not parse was written so, by another version.
    size_t end = text.rfind("end ");
    if (end == std::string_view::npos || end == 0 || text[end - 1] != '\n')
        return damaged("no checksum at its end");
    Reader tail(text.substr(end));
    tail.expect("end");
    auto sum = tail.number<uint64_t>(UINT64_MAX);
    tail.end_line();
    if (!tail.ok() || !tail.at_end() || sum != checksum(text.substr(0, end)))
        return damaged("the checksum does not match");

    ParsedRecord parsed;
    SessionRecord &record = parsed.record;
    Reader in(text.substr(0, end));
    auto number = [&](const char *name, uint64_t max) {
        in.expect(name);
        auto value = in.number<uint64_t>(max);
        in.end_line();
        return value;
    };
    auto bytes = [&](const char *name, size_t max) {
        in.expect(name);
        std::string value = in.bytes(max);
        in.end_line();
        return value;
    };
    in.expect("maru-session");
    if (in.word() != "1")
        in.fail("version 1 expected");
    in.end_line();
    in.expect("boot");
    parsed.boot_id = in.word();
    in.end_line();
    record.epoch = static_cast<uint32_t>(number("epoch", UINT32_MAX));
    std::string hash = bytes("token", 32);
    if (hash.size() == 32)
        std::copy(hash.begin(), hash.end(), reinterpret_cast<char *>(record.token_hash.data()));
    else
        in.fail("a token hash of 32 bytes expected");
    record.session = number("session", UINT64_MAX);
    record.uid = static_cast<uint32_t>(number("uid", UINT32_MAX));
    record.pid = static_cast<uint32_t>(number("pid", UINT32_MAX));
    record.start_time = number("start", UINT64_MAX);
    record.role = static_cast<wire::Role>(number("role", 1));
    record.engine = bytes("engine", wire::kMaxEngineIdBytes);
    record.client_name = bytes("client", wire::kMaxClientNameBytes);
    record.command = bytes("command", 256);
    record.fenced = number("fenced", 1) == 1;
    if (in.next_is("reads"))  // not in a record of a marud without shared memory
        record.reads_shared = number("reads", 1) == 1;
    uint64_t pools = number("pools", kMaxPools);
    for (uint64_t i = 0; i < pools && in.ok(); ++i)
        record.pools.push_back(read_pool(in));
    if (in.ok() && !in.at_end())
        in.fail("more than was announced");
    if (!in.ok())
        return damaged(in.error());
    return parsed;
}

}  // namespace maru
