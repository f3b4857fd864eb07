#include "daemon/config/nearest.h"

#include <algorithm>
#include <vector>

namespace maru {

size_t edit_distance(std::string_view a, std::string_view b) {
    // Optimal string alignment over three rows. Names are short; a hostile one is cut, because the
    // distance of a kilobyte to a key name tells nobody anything.
    a = a.substr(0, 256);
    b = b.substr(0, 256);
    std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
    for (size_t j = 0; j <= b.size(); ++j)
        last[j] = j;
    for (size_t i = 1; i <= a.size(); ++i) {
        row[0] = i;
        for (size_t j = 1; j <= b.size(); ++j) {
            size_t cost = a[i - 1] == b[j - 1] ? 0 : 1;
            row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + cost});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = std::min(row[j], before[j - 2] + 1);
        }
        std::swap(before, last);
        std::swap(last, row);
    }
    return last[b.size()];
}

}  // namespace maru
