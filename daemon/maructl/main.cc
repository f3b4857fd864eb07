// maructl: looks at marud and steers it.
#include <csignal>
#include <iostream>

#include "daemon/maructl/run.h"
#include "libmaru/base/socket_path.h"
#include "libmaru/wire/connect_marud.h"

int main(int argc, char **argv) {
    using namespace maru;
    ::signal(SIGPIPE, SIG_IGN);  // `maructl object | head` ends with a message, not a signal
    const auto open_socket = [](const maructl::Options &options, int64_t deadline_ns) {
        return wire::connect_marud(socket_paths(options.socket), deadline_ns);
    };
    const std::span<const char *const> words(argv + (argc > 0), argv + argc);
    return maructl::run(words, std::cout, std::cerr, open_socket);
}
