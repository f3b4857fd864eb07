#include "daemon/maructl/json_writer.h"

#include <cstdio>
#include <ostream>

namespace maru::maructl {

void JsonWriter::key(std::string_view name) {
    separate();
    quote(name);
    out_ << ':';
    after_key_ = true;
}

void JsonWriter::text(std::string_view value) {
    separate();
    quote(value);
}

void JsonWriter::number(uint64_t value) {
    separate();
    out_ << value;
}

void JsonWriter::signed_number(int64_t value) {
    separate();
    out_ << value;
}

void JsonWriter::real(double value) {
    separate();
    char text[64];
    std::snprintf(text, sizeof text, "%.2f", value);
    out_ << text;
}

void JsonWriter::decimal(std::string_view digits) {
    separate();
    out_ << digits;
}

void JsonWriter::flag(bool value) {
    separate();
    out_ << (value ? "true" : "false");
}

void JsonWriter::null() {
    separate();
    out_ << "null";
}

void JsonWriter::open(char bracket) {
    separate();
    out_ << bracket;
    filled_.push_back(false);
}

void JsonWriter::close(char bracket) {
    filled_.pop_back();
    out_ << bracket;
    if (filled_.empty())
        out_ << '\n';
}

void JsonWriter::separate() {
    if (after_key_) {
        after_key_ = false;
        return;
    }
    if (filled_.empty())
        return;
    if (filled_.back())
        out_ << ',';
    filled_.back() = true;
}

void JsonWriter::quote(std::string_view value) {
    out_ << '"';
    for (const char c : value) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            out_ << '\\' << c;
        } else if (byte < 0x20 || byte == 0x7f) {
            char escape[8];
            std::snprintf(escape, sizeof escape, "\\u%04x", byte);
            out_ << escape;
        } else {
            out_ << c;
        }
    }
    out_ << '"';
}

}  // namespace maru::maructl
