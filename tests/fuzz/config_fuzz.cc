// libFuzzer target: any text as marud's configuration. One without errors is printed and read again
// as the same.
#include <cstdlib>
#include <string>
#include <vector>

#include "daemon/config/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    using namespace maru;
    const std::vector<char> copy(data, data + size);
    ParsedConfig parsed = parse_config({copy.data(), copy.size()}, "fuzz");
    for (const std::string &error : parsed.errors)
        if (error.empty())
            std::abort();
    if (!parsed.errors.empty())
        return 0;
    resolve_config(parsed, "fuzz", 1ull << 34);
    if (!parsed.errors.empty())
        return 0;
    const std::string printed = print_config(parsed.config);
    const ParsedConfig again = parse_config(printed, "printed");
    if (!again.errors.empty() || print_config(again.config) != printed)
        std::abort();
    return 0;
}
