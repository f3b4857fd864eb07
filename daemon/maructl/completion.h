// Completion of maructl's command line, for the shells that people use: made of the table of verbs and
// the table of options, so that a new row needs nothing here.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace maru::maructl {

// What completes one word. From marud where it names something of marud's.
struct Completion {
    std::string words;     // fixed ones, separated by blanks
    std::string_view ask;  // the verb whose JSON has the values; empty: none
    std::string_view key;  // of that JSON
};
// By the word of usage or help: "NAMESPACE", "on|off", "ID". Nothing for a word that is free.
Completion completion_of(std::string_view usage_word);

std::string bash_completion();
std::string zsh_completion();
std::string fish_completion();

// nullopt: no such shell.
std::optional<std::string> completion_script(std::string_view shell);

}  // namespace maru::maructl
