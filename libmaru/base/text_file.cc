#include "libmaru/base/text_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "libmaru/base/unique_fd.h"

namespace maru {

std::optional<std::string> read_text_file(const std::string &path) {
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd)
        return std::nullopt;
    std::string text;
    char buffer[4096];
    for (;;) {
        const ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return std::nullopt;
        if (got == 0)
            return text;
        text.append(buffer, static_cast<size_t>(got));
    }
}

std::optional<uint64_t> leading_number(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t'))
        text.remove_prefix(1);
    uint64_t value = 0;
    auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failed != std::errc{} || end == text.data())
        return std::nullopt;
    return value;
}

std::optional<uint64_t> read_number_file(const std::string &path) {
    auto text = read_text_file(path);
    return text ? leading_number(*text) : std::nullopt;
}

std::optional<uint64_t> number_after(std::string_view text, std::string_view name) {
    for (size_t at = text.find(name); at != text.npos; at = text.find(name, at + 1)) {
        const bool starts_word = at == 0 || text[at - 1] == '\n' || text[at - 1] == ' ';
        if (starts_word)
            return leading_number(text.substr(at + name.size()));
    }
    return std::nullopt;
}

}  // namespace maru
