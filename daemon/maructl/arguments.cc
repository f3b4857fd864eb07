#include "daemon/maructl/arguments.h"

#include <algorithm>
#include <charconv>

#include "libmaru/base/nearest_name.h"

namespace maru::maructl {

namespace {

const Option *find_option(std::string_view name) {
    if (name == "-h")
        name = "--help";
    for (const Option &option : options())
        if (option.name == name)
            return &option;
    return nullptr;
}

const Verb *find_verb(std::string_view name) {
    for (const Verb &verb : verbs())
        if (verb.name == name)
            return &verb;
    return nullptr;
}

std::string unknown(std::string_view what, std::string_view word,
                    const std::vector<std::string_view> &known) {
    const std::string hint = suggestion(word, known);
    return "unknown " + std::string(what) + " '" + std::string(word) + "'" +
           (hint.empty() ? "; 'maructl --help' lists them" : hint);
}

std::string usage_line(const Verb &verb) {
    std::string line = "maructl " + std::string(verb.name);
    if (!verb.arguments.empty())
        line += " " + std::string(verb.arguments);
    return line;
}

Result<void> take_option(CommandLine &line, std::span<const char *const> words, size_t *at,
                         unsigned *seen) {
    std::string_view word = words[*at];
    std::string_view value;
    const size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    const Option *option = find_option(name);
    if (!option) {
        std::vector<std::string_view> known;
        for (const Option &candidate : options())
            known.push_back(candidate.name);
        return Error{0, unknown("option", name, known)};
    }
    if (option->value.empty()) {
        if (equals != word.npos)
            return Error{0, std::string(name) + ": takes no value"};
    } else if (equals != word.npos) {
        value = word.substr(equals + 1);
    } else if (*at + 1 < words.size()) {
        value = words[++*at];
    } else {
        return Error{0,
                     std::string(name) + ": expected " + std::string(option->value) + " behind it"};
    }
    *seen |= option->bit;
    return option->set(line, value);
}

Result<void> check_fit(const CommandLine &line, unsigned seen) {
    const Verb &verb = *line.verb;
    for (const Option &option : options())
        if (option.bit & seen & ~verb.options)
            return Error{0, std::string(option.name) + ": '" + std::string(verb.name) +
                                "' does not take it"};
    const size_t n = line.options.arguments.size();
    if (n > verb.max_arguments)
        return Error{0, "'" + line.options.arguments[verb.max_arguments] +
                            "': one argument too many, expected: " + usage_line(verb)};
    if (n < verb.min_arguments)
        return Error{
            0, std::string(verb.name) + ": an argument is missing, expected: " + usage_line(verb)};
    return {};
}

std::string padded(std::string text, size_t width) {
    text.resize(std::max(text.size() + 2, width), ' ');
    return text;
}

std::string option_lines(unsigned bits) {
    std::string text;
    for (const Option &option : options()) {
        if (option.bit && !(option.bit & bits))
            continue;
        std::string head = "  " + std::string(option.name);
        if (!option.value.empty())
            head += " " + std::string(option.value);
        text += padded(head, 34) + std::string(option.summary) + "\n";
    }
    return text;
}

int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

}  // namespace

Result<CommandLine> parse_command_line(std::span<const char *const> words) {
    CommandLine line;
    unsigned seen = 0;
    bool options_end = false;
    for (size_t at = 0; at < words.size(); ++at) {
        const std::string_view word = words[at];
        if (!options_end && word == "--") {
            options_end = true;
        } else if (!options_end && word.size() > 1 && word.front() == '-') {
            if (auto taken = take_option(line, words, &at, &seen); !taken)
                return taken.error();
        } else if (!line.verb) {
            if (word == "help") {
                line.kind = CommandLine::Kind::Help;
                continue;
            }
            line.verb = find_verb(word);
            if (!line.verb) {
                std::vector<std::string_view> known;
                for (const Verb &verb : verbs())
                    known.push_back(verb.name);
                return Error{0, unknown("command", word, known)};
            }
        } else {
            line.options.arguments.emplace_back(word);
        }
    }
    if (line.kind != CommandLine::Kind::Run)
        return line;
    if (!line.verb)
        return Error{0, "a command is missing; 'maructl --help' lists them"};
    if (auto fits = check_fit(line, seen); !fits)
        return fits.error();
    return line;
}

std::string help_text() {
    std::string text =
        "maructl [OPTION...] COMMAND [ARGUMENT...]\n\nLook at marud and steer it.\n\n";
    for (const Verb &verb : verbs()) {
        std::string head = "  " + std::string(verb.name);
        if (!verb.arguments.empty())
            head += " " + std::string(verb.arguments);
        text += padded(head, 34) + std::string(verb.summary) + "\n";
    }
    return text + "\n" + option_lines(~0u) +
           "\nExit status: 0 done, 1 failed, 2 wrong usage, 3 marud cannot be reached.\n";
}

std::string help_text(const Verb &verb) {
    return usage_line(verb) + "\n\n" + std::string(verb.summary) + "\n\n" +
           option_lines(verb.options);
}

Result<uint64_t> parse_number(std::string_view text, std::string_view what, uint64_t max) {
    uint64_t value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code == std::errc::invalid_argument || end != text.data() + text.size())
        return Error{0, std::string(what) + " '" + std::string(text) + "': not a number"};
    if (code == std::errc::result_out_of_range || value > max)
        return Error{
            0, std::string(what) + " '" + std::string(text) + "': at most " + std::to_string(max)};
    return value;
}

Result<wire::Id> parse_id(std::string_view text) {
    uint64_t value = 0;
    const std::string_view digits = text.size() > 2 ? text.substr(2) : std::string_view();
    const auto [end, code] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if ((text.substr(0, 2) != "0x" && text.substr(0, 2) != "0X") || digits.empty() ||
        code != std::errc() || end != digits.data() + digits.size())
        return Error{0,
                     "id '" + std::string(text) + "': expected 0x and 1 to 16 hexadecimal digits"};
    return value;
}

Result<wire::Key> parse_key(std::string_view text) {
    wire::Key key;
    const std::string_view digest = text.substr(0, text.find('/'));
    const size_t digits = 2 * key.digest.bytes.size();
    if (digest.size() != digits)
        return Error{0, "digest '" + std::string(digest) + "': " + std::to_string(digest.size()) +
                            " characters, must be " + std::to_string(digits) +
                            " hexadecimal digits"};
    for (size_t i = 0; i < digits; i += 2) {
        const int high = hex_digit(digest[i]), low = hex_digit(digest[i + 1]);
        if (high < 0 || low < 0)
            return Error{0, "digest '" + std::string(digest) + "': character " +
                                std::to_string(i + (high < 0 ? 1 : 2)) +
                                " is not a hexadecimal digit"};
        key.digest.bytes[i / 2] = static_cast<uint8_t>(high * 16 + low);
    }
    uint32_t *const parts[] = {&key.shard, &key.part};
    const char *const names[] = {"shard", "part"};
    std::string_view rest = text.substr(digest.size());
    for (size_t i = 0; i < 2 && !rest.empty(); ++i) {
        rest.remove_prefix(1);
        const std::string_view word = rest.substr(0, rest.find('/'));
        const auto number = parse_number(word, names[i], UINT32_MAX);
        if (!number)
            return number.error();
        *parts[i] = static_cast<uint32_t>(*number);
        rest.remove_prefix(word.size());
    }
    if (!rest.empty())
        return Error{0, "object '" + std::string(text) + "': expected DIGEST[/SHARD[/PART]]"};
    return key;
}

}  // namespace maru::maructl
