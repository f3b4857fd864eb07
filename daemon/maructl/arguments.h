// What stands on the command line, into Options. Every mistake is named, with what is allowed.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "daemon/maructl/option.h"
#include "libmaru/wire/records.h"

namespace maru::maructl {

// `words` without the program's name. An error's code is 0.
Result<CommandLine> parse_command_line(std::span<const char *const> words);

std::string help_text();
std::string help_text(const Verb &verb);

Result<uint64_t> parse_number(std::string_view text, std::string_view what, uint64_t max);
Result<wire::Id> parse_id(std::string_view text);    // "0x..."
Result<wire::Key> parse_key(std::string_view text);  // DIGEST[/SHARD[/PART]]

}  // namespace maru::maructl
