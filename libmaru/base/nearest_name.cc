#include "libmaru/base/nearest_name.h"

#include <algorithm>
#include <vector>

namespace maru {

namespace {

constexpr size_t kLongestWord = 64;  // longer ones are no misspelt key
constexpr size_t kCut = 256;         // bounds the table

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
    // Three rows at a time. The distance of a kilobyte to a key name tells nobody anything.
    a = a.substr(0, kCut);
    b = b.substr(0, kCut);
    std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
    for (size_t j = 0; j <= b.size(); ++j)
        last[j] = j;
    for (size_t i = 1; i <= a.size(); ++i) {
        row[0] = i;
        for (size_t j = 1; j <= b.size(); ++j) {
            const bool equal = lower(a[i - 1]) == lower(b[j - 1]);
            row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (equal ? 0 : 1)});
            if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                lower(a[i - 2]) == lower(b[j - 1]))
                row[j] = std::min(row[j], before[j - 2] + 1);
        }
        std::swap(before, last);
        std::swap(last, row);
    }
    return last[b.size()];
}

std::string_view nearest_name(std::string_view word, std::span<const std::string_view> known) {
    if (word.empty() || word.size() > kLongestWord)
        return {};
    std::string_view best;
    size_t best_distance = std::max<size_t>(1, word.size() / 3) + 1;
    for (std::string_view name : known) {
        if (const size_t d = edit_distance(word, name); d < best_distance) {
            best = name;
            best_distance = d;
        }
    }
    if (!best.empty())
        return best;
    for (std::string_view name : known)
        if (word.size() >= 2 && name.size() > word.size() && name.substr(0, word.size()) == word)
            return name;
    return {};
}

std::string suggestion(std::string_view word, std::span<const std::string_view> known) {
    const std::string_view name = nearest_name(word, known);
    return name.empty() ? "" : ", did you mean '" + std::string(name) + "'?";
}

}  // namespace maru
