#include "libmaru/base/socket_path.h"

#include <cstdlib>

namespace maru {

namespace {

std::string_view environment(const char *name) {
    const char *value = ::secure_getenv(name);
    return value ? value : "";
}

}  // namespace

std::vector<std::string> socket_paths(std::string_view given) {
    if (!given.empty())
        return {std::string(given)};
    if (const auto chosen = environment("MARU_SOCKET"); !chosen.empty())
        return {std::string(chosen)};
    std::vector<std::string> paths{std::string(kSystemSocketPath)};
    if (const auto runtime = environment("XDG_RUNTIME_DIR"); !runtime.empty())
        paths.push_back(std::string(runtime) + "/maru/marud.sock");
    return paths;
}

}  // namespace maru
