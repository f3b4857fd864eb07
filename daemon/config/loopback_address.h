// A TCP address of this host alone, as it stands in a configuration: "127.0.0.1:9469", "[::1]:9469".
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "libmaru/base/result.h"

namespace maru {

struct LoopbackAddress {
    union {
        sockaddr any;
        sockaddr_in v4;
        sockaddr_in6 v6;
    };
    socklen_t size = 0;
    const sockaddr *generic() const { return &any; }
};

// Numbers only, so that what is checked is what is bound. The error says what is wrong with `text`.
Result<LoopbackAddress> parse_loopback_address(const std::string &text);

}  // namespace maru
