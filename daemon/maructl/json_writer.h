// Writes JSON as it goes. Keys and nesting are the caller's; commas, quotes and escapes are ours.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string_view>
#include <vector>

namespace maru::maructl {

class JsonWriter {
  public:
    explicit JsonWriter(std::ostream &out) : out_(out) {}

    void begin_object() { open('{'); }
    void end_object() { close('}'); }
    void begin_array() { open('['); }
    void end_array() { close(']'); }
    void key(std::string_view name);
    void text(std::string_view value);  // UTF-8
    void number(uint64_t value);
    void signed_number(int64_t value);
    void real(double value);                // two decimals
    void decimal(std::string_view digits);  // "12" or "0.5", as it stands
    void flag(bool value);
    void null();

  private:
    void open(char bracket);
    void close(char bracket);
    void separate();
    void quote(std::string_view value);

    std::ostream &out_;
    std::vector<bool> filled_;  // per open bracket: has an element
    bool after_key_ = false;
};

}  // namespace maru::maructl
