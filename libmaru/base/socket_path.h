// Where a client looks for marud.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace maru {

inline constexpr std::string_view kSystemSocketPath = "/run/maru/marud.sock";

// In the order to try: `given` alone if it is not empty; else $MARU_SOCKET alone if it is set; else
// the system's, then $XDG_RUNTIME_DIR/maru/marud.sock. In a set-user-id program the environment is
// not asked.
std::vector<std::string> socket_paths(std::string_view given = {});

}  // namespace maru
