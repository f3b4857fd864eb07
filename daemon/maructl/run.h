// maructl from its arguments to its exit status; main() and the tests call it.
#pragma once

#include <functional>
#include <iosfwd>
#include <span>

#include "daemon/maructl/verb.h"

namespace maru::maructl {

using OpenSocket = std::function<Result<UniqueFd>(const Options &, int64_t deadline_ns)>;

// `words` without the program's name. Results go to `out`, diagnostics to `err`.
int run(std::span<const char *const> words, std::ostream &out, std::ostream &err,
        const OpenSocket &open_socket);

}  // namespace maru::maructl
