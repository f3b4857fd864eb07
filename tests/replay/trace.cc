#include "tests/replay/trace.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <limits>
#include <unordered_set>

namespace maru::replay {
namespace {

// A cursor over one line of JSON. Each take_* either consumes what it names or records an error.
class Cursor {
  public:
    explicit Cursor(std::string_view text) : text_(text) {}

    bool failed() const { return !error_.empty(); }
    Error error() const { return Error{EINVAL, error_}; }
    void fail(const std::string &expected) {
        if (!failed())
            error_ = "column " + std::to_string(at_ + 1) + ": expected " + expected;
    }

    bool accept(char c) {
        skip_space();
        if (at_ < text_.size() && text_[at_] == c) {
            ++at_;
            return true;
        }
        return false;
    }
    void take(char c) {
        if (!accept(c))
            fail(std::string("'") + c + "'");
    }
    std::string_view take_string() {
        take('"');
        size_t begin = at_;
        while (at_ < text_.size() && text_[at_] != '"')
            at_ += text_[at_] == '\\' ? 2 : 1;
        if (at_ >= text_.size()) {
            at_ = text_.size();
            fail("a closing '\"'");
            return {};
        }
        return text_.substr(begin, at_++ - begin);
    }
    uint64_t take_number(uint64_t max) {
        skip_space();
        uint64_t value = 0;
        const char *begin = text_.data() + at_, *end = text_.data() + text_.size();
        auto [stop, code] = std::from_chars(begin, end, value);
        bool whole =
            stop == end || std::string_view(",]} \t\r").find(*stop) != std::string_view::npos;
        if (code != std::errc() || value > max || !whole) {
            fail("a whole number from 0 to " + std::to_string(max));
            return 0;
        }
        at_ += static_cast<size_t>(stop - begin);
        return value;
    }
    void skip_value(int depth = 0) {
        skip_space();
        if (failed() || at_ >= text_.size() || depth > 16)
            return fail("a value");
        char c = text_[at_];
        if (c == '"') {
            take_string();
        } else if (c == '[' || c == '{') {
            char close = c == '[' ? ']' : '}';
            ++at_;
            if (accept(close))
                return;
            do {
                if (c == '{') {
                    take_string();
                    take(':');
                }
                skip_value(depth + 1);
            } while (!failed() && accept(','));
            take(close);
        } else {
            size_t begin = at_;
            while (at_ < text_.size() &&
                   std::string_view("+-.0123456789abcdefghijklmnopqrstuvwxyzE").find(text_[at_]) !=
                       std::string_view::npos)
                ++at_;
            if (at_ == begin)
                fail("a value");
        }
    }
    void take_end() {
        skip_space();
        if (at_ != text_.size())
            fail("the end of the line");
    }

  private:
    void skip_space() {
        while (at_ < text_.size() &&
               (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r'))
            ++at_;
    }

    std::string_view text_;
    size_t at_ = 0;
    std::string error_;
};

enum Member : unsigned { kTimestamp = 1, kInput = 2, kOutput = 4, kBlocks = 8, kAll = 15 };

void take_blocks(Cursor &cursor, std::vector<uint32_t> &blocks) {
    cursor.take('[');
    if (cursor.accept(']'))
        return;
    do {
        if (blocks.size() == kMaxBlocks)
            return cursor.fail("at most " + std::to_string(kMaxBlocks) + " hash_ids");
        blocks.push_back(static_cast<uint32_t>(cursor.take_number(UINT32_MAX)));
    } while (!cursor.failed() && cursor.accept(','));
    cursor.take(']');
}

}  // namespace

Result<TraceRequest> parse_trace_line(std::string_view line) {
    TraceRequest request;
    Cursor cursor(line);
    unsigned seen = 0;
    cursor.take('{');
    do {
        std::string_view name = cursor.take_string();
        cursor.take(':');
        if (cursor.failed())
            break;
        unsigned member = 0;
        if (name == "timestamp") {
            member = kTimestamp;
            request.timestamp_ms = cursor.take_number(std::numeric_limits<uint64_t>::max() / 2);
        } else if (name == "input_length") {
            member = kInput;
            request.input_tokens = static_cast<uint32_t>(cursor.take_number(UINT32_MAX));
        } else if (name == "output_length") {
            member = kOutput;
            request.output_tokens = static_cast<uint32_t>(cursor.take_number(UINT32_MAX));
        } else if (name == "hash_ids") {
            member = kBlocks;
            take_blocks(cursor, request.blocks);
        } else {
            cursor.skip_value();
        }
        if (seen & member)
            cursor.fail("each member once, not '" + std::string(name) + "' again");
        seen |= member;
    } while (!cursor.failed() && cursor.accept(','));
    cursor.take('}');
    cursor.take_end();
    if (!cursor.failed() && seen != kAll)
        cursor.fail("the members timestamp, input_length, output_length and hash_ids");
    if (cursor.failed())
        return cursor.error();
    return request;
}

Result<std::vector<TraceRequest>> read_trace(std::istream &in, const std::string &name) {
    std::vector<TraceRequest> trace;
    std::string line;
    uint64_t number = 0;
    while (std::getline(in, line)) {
        ++number;
        std::string where = name + ":" + std::to_string(number) + ": ";
        if (line.size() > kMaxLineBytes)
            return Error{EINVAL, where + "line of " + std::to_string(line.size()) +
                                     " bytes; at most " + std::to_string(kMaxLineBytes)};
        if (line.find_first_not_of(" \t\r") == std::string::npos)
            continue;
        auto request = parse_trace_line(line);
        if (!request)
            return Error{EINVAL, where + request.error().message};
        if (!trace.empty() && request->timestamp_ms < trace.back().timestamp_ms)
            return Error{EINVAL, where + "timestamp goes back"};
        trace.push_back(std::move(*request));
    }
    if (in.bad())
        return Error{EIO, "read '" + name + "'"};
    if (trace.empty())
        return Error{EINVAL, name + ": no request in it"};
    return trace;
}

Result<std::vector<TraceRequest>> read_trace_file(const std::string &path) {
    std::ifstream in(path);
    if (!in)
        return Error{errno ? errno : ENOENT, "open trace '" + path + "'"};
    return read_trace(in, path);
}

std::vector<TraceRequest> generate_trace(uint32_t requests, uint64_t seed) {
    uint64_t state = seed + 0x9E3779B97F4A7C15;
    auto random = [&state](uint64_t below) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        return state % below;
    };
    constexpr uint32_t kSystemPrompt = 2, kBlockTokens = 512;
    uint32_t next_block = kSystemPrompt;
    std::vector<std::vector<uint32_t>> conversations;
    std::vector<TraceRequest> trace;
    uint64_t now = 0;
    for (uint32_t i = 0; i < requests; ++i) {
        now += random(200);
        // Six of ten requests are a further turn of a conversation that is not too old.
        size_t which;
        if (conversations.empty() || random(10) >= 6) {
            which = conversations.size();
            conversations.push_back({0, 1});
        } else {
            size_t recent = std::min<size_t>(conversations.size(), 64);
            which = conversations.size() - 1 - random(recent);
        }
        auto &blocks = conversations[which];
        for (uint64_t n = 1 + random(12); n > 0; --n)
            blocks.push_back(next_block++);
        TraceRequest request;
        request.timestamp_ms = now;
        request.input_tokens =
            static_cast<uint32_t>(blocks.size() * kBlockTokens - random(kBlockTokens));
        request.output_tokens = static_cast<uint32_t>(1 + random(800));
        request.blocks = blocks;
        trace.push_back(std::move(request));
    }
    return trace;
}

void write_trace(std::ostream &out, const std::vector<TraceRequest> &trace) {
    for (const auto &request : trace) {
        out << "{\"timestamp\": " << request.timestamp_ms
            << ", \"input_length\": " << request.input_tokens
            << ", \"output_length\": " << request.output_tokens << ", \"hash_ids\": [";
        for (size_t i = 0; i < request.blocks.size(); ++i)
            out << (i ? ", " : "") << request.blocks[i];
        out << "]}\n";
    }
}

IdealHits ideal_hits(const std::vector<TraceRequest> &trace) {
    // A block's identity is its whole prefix; chained so that an id re-used after another prefix
    // differs.
    std::unordered_set<uint64_t> seen;
    IdealHits ideal;
    for (const auto &request : trace) {
        uint64_t prefix = 0;
        bool matching = true, hit = false;
        for (uint32_t block : request.blocks) {
            prefix = (prefix ^ block) * 0x9E3779B97F4A7C15;
            prefix ^= prefix >> 29;
            bool known = !seen.insert(prefix).second;
            matching = matching && known;
            ideal.hit_blocks += matching;
            hit = hit || matching;
        }
        ideal.blocks += request.blocks.size();
        ideal.requests++;
        ideal.hit_requests += hit;
    }
    return ideal;
}

}  // namespace maru::replay
