#include "daemon/maructl/completion.h"

#include <algorithm>
#include <ostream>
#include <vector>

#include "daemon/maructl/option.h"

namespace maru::maructl {

namespace {

// "NAMESPACE [OBJECT]" as its words; what begins an option ends them.
std::vector<std::string> usage_words(const Verb &verb) {
    std::vector<std::string> words;
    std::string_view rest = verb.arguments;
    while (!rest.empty()) {
        const std::string_view word = rest.substr(0, rest.find(' '));
        rest.remove_prefix(std::min(rest.size(), word.size() + 1));
        if (word.rfind("--", 0) == 0)
            break;
        words.emplace_back(word);
        std::string &kept = words.back();
        kept.erase(
            std::remove_if(kept.begin(), kept.end(), [](char c) { return c == '[' || c == ']'; }),
            kept.end());
    }
    return words;
}

bool takes(const Verb &verb, const Option &option) {
    return option.bit == 0 || (verb.options & option.bit);
}

// Every option that takes a value, as a pattern of `case`.
std::string value_options() {
    std::string pattern;
    for (const Option &option : options())
        if (!option.value.empty())
            pattern += (pattern.empty() ? "" : " | ") + std::string(option.name);
    return pattern;
}

std::string escaped(std::string_view text, std::string_view special, std::string_view escape) {
    std::string out;
    for (const char c : text) {
        if (special.find(c) != special.npos)
            out += escape;
        out += c;
    }
    return out;
}

// In single quotes, for a POSIX shell.
std::string quoted(std::string_view text) {
    std::string out = "'";
    for (const char c : text)
        out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return out + "'";
}

std::string fish_quoted(std::string_view text) { return "'" + escaped(text, "'\\", "\\") + "'"; }

std::string without_dashes(std::string_view name) {
    return std::string(name.substr(std::min(name.find_first_not_of('-'), name.size())));
}

// Prints each value once. A second is enough: somebody waits with a finger on the tab key.
constexpr char kValues[] =
    " --json --timeout 1s 2>/dev/null |\n"
    "        grep -o \"\\\"$2\\\":\\\"[^\\\"]*\\\"\" | cut -d '\"' -f 4 | sort -u\n";

constexpr char kHead[] = "# Made by 'maructl completion' of the same version; edit nothing here.\n";

std::string bash_action(const Completion &completion) {
    if (!completion.ask.empty())
        return "words=$(_maructl_values " + std::string(completion.ask) + " " +
               std::string(completion.key) + ")";
    return "words=" + quoted(completion.words);
}

std::string zsh_action(const Completion &completion) {
    if (!completion.ask.empty())
        return "{_maructl_add " + std::string(completion.ask) + " " + std::string(completion.key) +
               "}";
    return completion.words.empty() ? " " : "(" + completion.words + ")";
}

std::string zsh_option(const Option &option) {
    const std::string summary = escaped(option.summary, "[]:\\", "\\");
    if (option.value.empty())
        return quoted(std::string(option.name) + "[" + summary + "]");
    const std::string action =
        option.value == "PATH" ? "_files" : zsh_action(completion_of(option.value));
    return quoted(std::string(option.name) + "=[" + summary + "]:" + std::string(option.value) +
                  ":" + action);
}

std::string fish_action(const Completion &completion) {
    if (!completion.ask.empty())
        return "'(__maructl_values " + std::string(completion.ask) + " " +
               std::string(completion.key) + ")'";
    return fish_quoted(completion.words);
}

bool known(const Completion &completion) {
    return !completion.words.empty() || !completion.ask.empty();
}

}  // namespace

Completion completion_of(std::string_view usage_word) {
    if (usage_word == "NAMESPACE")
        return {"", "namespace", "namespace"};
    if (usage_word == "POOL")
        return {"", "pool", "pool"};
    if (usage_word == "ID")
        return {"", "session", "engine"};
    if (usage_word.find('|') == usage_word.npos)
        return {};
    std::string words(usage_word);
    std::replace(words.begin(), words.end(), '|', ' ');
    return {words, "", ""};
}

std::string bash_completion() {
    std::string verb_names, fixed, positions, option_words, option_values;
    for (const Verb &verb : verbs()) {
        const std::string name(verb.name);
        verb_names += (verb_names.empty() ? "" : " ") + name;
        std::string own;
        for (const Option &option : options())
            if (option.bit && takes(verb, option))
                own += " " + std::string(option.name);
        if (!own.empty())
            option_words += "        " + name + ") words+=" + quoted(own) + " ;;\n";
        const auto words = usage_words(verb);
        for (size_t i = 0; i < words.size(); ++i)
            if (const Completion completion = completion_of(words[i]); known(completion))
                positions += "        " + name + ":" + std::to_string(i) + ") " +
                             bash_action(completion) + " ;;\n";
    }
    for (const Option &option : options()) {
        if (!option.bit)
            fixed += (fixed.empty() ? "" : " ") + std::string(option.name);
        if (option.value == "PATH")
            option_values += "        " + std::string(option.name) +
                             ")\n            compopt -o filenames 2>/dev/null\n"
                             "            mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
                             "            return ;;\n";
        else if (const Completion completion = completion_of(option.value); known(completion))
            option_values +=
                "        " + std::string(option.name) + ") " + bash_action(completion) + " ;;\n";
    }
    return std::string(kHead) +
           "_maructl_values() {\n"
           "    \"${COMP_WORDS[0]}\" \"$1\" \"${socket[@]}\"" +
           kValues +
           "}\n"
           "_maructl() {\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} verb='' taking='' words='' word i at=0\n"
           "    local -a socket=()\n"
           "    COMPREPLY=()\n"
           "    # bash takes the '=' of --socket=PATH for a word of its own.\n"
           "    [[ $cur == '=' ]] && cur=''\n"
           "    for ((i = 1; i < COMP_CWORD; ++i)); do\n"
           "        word=${COMP_WORDS[i]}\n"
           "        if [[ $word == '=' ]]; then\n"
           "            continue\n"
           "        elif [[ -n $taking ]]; then\n"
           "            [[ $taking == --socket ]] && socket=(--socket \"$word\")\n"
           "            taking=''\n"
           "        elif [[ $word == -* ]]; then\n"
           "            case $word in " +
           value_options() +
           ") taking=$word ;; esac\n"
           "        elif [[ -z $verb ]]; then\n"
           "            verb=$word\n"
           "        else\n"
           "            ((++at))\n"
           "        fi\n"
           "    done\n"
           "    if [[ -n $taking ]]; then\n"
           "        case $taking in\n" +
           option_values +
           "        esac\n"
           "    elif [[ $cur == -* ]]; then\n"
           "        words=" +
           quoted(fixed) + "\n        case $verb in\n" + option_words +
           "        esac\n"
           "    elif [[ -z $verb ]]; then\n"
           "        words=" +
           quoted(verb_names) +
           "\n    else\n"
           "        case $verb:$at in\n" +
           positions +
           "        esac\n"
           "    fi\n"
           "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
           "}\n"
           "complete -F _maructl maructl\n";
}

std::string zsh_completion() {
    std::string verb_lines, global, cases;
    for (const Option &option : options())
        if (!option.bit)
            global += "        " + zsh_option(option) + "\n";
    for (const Verb &verb : verbs()) {
        verb_lines += "        " +
                      quoted(std::string(verb.name) + ":" + escaped(verb.summary, ":\\", "\\")) +
                      "\n";
        std::string specs;
        for (const Option &option : options())
            if (option.bit && takes(verb, option))
                specs += " " + zsh_option(option);
        const auto words = usage_words(verb);
        for (size_t i = 0; i < words.size(); ++i)
            specs += " " + quoted(std::to_string(i + 2) + (i < verb.min_arguments ? ":" : "::") +
                                  words[i] + ":" + zsh_action(completion_of(words[i])));
        if (!specs.empty())
            cases += "    " + std::string(verb.name) + ") specs=(" + specs.substr(1) + ") ;;\n";
    }
    return "#compdef maructl\n" + std::string(kHead) +
           "_maructl_values() {\n"
           "    local place=$opt_args[--socket]\n"
           "    maructl \"$1\" ${place:+--socket} ${(Q)place}" +
           kValues +
           "}\n"
           "_maructl_add() {\n"
           "    local -a found\n"
           "    found=(${(f)\"$(_maructl_values \"$1\" \"$2\")\"})\n"
           "    compadd -a found\n"
           "}\n"
           "_maructl() {\n"
           "    local curcontext=$curcontext state state_descr verb taking word\n"
           "    local -a line all specs verbs\n"
           "    typeset -A opt_args\n"
           "    all=(\n" +
           global +
           "    )\n"
           "    verbs=(\n" +
           verb_lines +
           "    )\n"
           "    # Options may stand before the command, so the command is looked for first.\n"
           "    for word in \"${(@)words[2,CURRENT-1]}\"; do\n"
           "        if [[ -n $taking ]]; then\n"
           "            taking=''\n"
           "        elif [[ $word == -* ]]; then\n"
           "            case $word in (" +
           value_options() +
           ") taking=$word ;; esac\n"
           "        elif [[ -z $verb ]]; then\n"
           "            verb=$word\n"
           "        fi\n"
           "    done\n"
           "    case $verb in\n" +
           cases +
           "    esac\n"
           "    _arguments -C $all '1:command:->verb' $specs && return\n"
           "    [[ $state == verb ]] && _describe command verbs\n"
           "}\n"
           "if [[ $funcstack[1] == _maructl ]]; then\n"
           "    _maructl \"$@\"\n"
           "else\n"
           "    compdef _maructl maructl\n"
           "fi\n";
}

std::string fish_completion() {
    std::string text =
        std::string(kHead) +
        "function __maructl_values\n"
        "    set -l words (commandline -opc)\n"
        "    set -l socket\n"
        "    if set -l at (contains -i -- --socket $words)\n"
        "        and set -q words[(math $at + 1)]\n"
        "        set socket --socket $words[(math $at + 1)]\n"
        "    end\n"
        "    $words[1] $argv[1] --json --timeout 1s $socket 2>/dev/null |\n"
        "        string match -ra '\"'$argv[2]'\":\"[^\"]*\"' | cut -d '\"' -f 4 | sort -u\n"
        "end\n"
        "# Is the next word argument number $argv[2] of the verb $argv[1]? Verb '': is it the "
        "verb?\n"
        "function __maructl_at\n"
        "    set -l verb ''\n"
        "    set -l at 0\n"
        "    set -l taking 0\n"
        "    for word in (commandline -opc)[2..-1]\n"
        "        if test $taking = 1\n"
        "            set taking 0\n"
        "        else\n"
        "            switch $word\n";
    for (const Option &option : options())
        if (!option.value.empty())
            text += "                case " + std::string(option.name) +
                    "\n                    set taking 1\n";
    text +=
        "                case '-*'\n"
        "                case '*'\n"
        "                    if test -z \"$verb\"\n"
        "                        set verb $word\n"
        "                    else\n"
        "                        set at (math $at + 1)\n"
        "                    end\n"
        "            end\n"
        "        end\n"
        "    end\n"
        "    test \"$verb\" = \"$argv[1]\"; and test $at = $argv[2]\n"
        "end\n"
        "function __maructl_verb\n"
        "    contains -- $argv[1] (commandline -opc)\n"
        "end\n"
        "complete -c maructl -f\n";
    for (const Option &option : options()) {
        std::string condition;
        for (const Verb &verb : verbs())
            if (option.bit && takes(verb, option))
                condition += (condition.empty() ? "" : "; or ") +
                             ("__maructl_verb " + std::string(verb.name));
        text += "complete -c maructl -l " + without_dashes(option.name) + " -d " +
                fish_quoted(option.summary);
        if (!condition.empty())
            text += " -n " + fish_quoted(condition);
        if (option.value == "PATH")
            text += " -r -F";
        else if (const Completion completion = completion_of(option.value); known(completion))
            text += " -x -a " + fish_action(completion);
        else if (!option.value.empty())
            text += " -x";
        text += "\n";
    }
    for (const Verb &verb : verbs()) {
        text += "complete -c maructl -n \"__maructl_at '' 0\" -a " + std::string(verb.name) +
                " -d " + fish_quoted(verb.summary) + "\n";
        const auto words = usage_words(verb);
        for (size_t i = 0; i < words.size(); ++i)
            if (const Completion completion = completion_of(words[i]); known(completion))
                text += "complete -c maructl -n '__maructl_at " + std::string(verb.name) + " " +
                        std::to_string(i) + "' -a " + fish_action(completion) + "\n";
    }
    return text;
}

std::optional<std::string> completion_script(std::string_view shell) {
    if (shell == "bash")
        return bash_completion();
    if (shell == "zsh")
        return zsh_completion();
    if (shell == "fish")
        return fish_completion();
    return std::nullopt;
}

int verb_completion(Context &context) {
    const std::string &shell = context.options.arguments[0];
    const auto script = completion_script(shell);
    if (!script)
        return context.fail(kUsage, "completion: '" + shell + "', must be 'bash', 'zsh' or 'fish'");
    context.out << *script;
    return kOk;
}

}  // namespace maru::maructl
