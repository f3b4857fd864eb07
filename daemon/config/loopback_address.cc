#include "daemon/config/loopback_address.h"

#include <arpa/inet.h>

#include <cerrno>
#include <charconv>

namespace maru {
namespace {

Error wrong(const std::string &text, const std::string &why) {
    return Error{EINVAL, "'" + text + "' " + why +
                             "; expected an address of this host alone with its port, such as "
                             "127.0.0.1:9469 or [::1]:9469"};
}

}  // namespace

Result<LoopbackAddress> parse_loopback_address(const std::string &text) {
    size_t colon = text.rfind(':');
    if (colon == text.npos || text.find('\0') != text.npos)
        return wrong(text, "has no port");
    std::string host = text.substr(0, colon);
    unsigned port = 0;
    const char *digits = text.data() + colon + 1, *text_end = text.data() + text.size();
    auto [end, code] = std::from_chars(digits, text_end, port);
    if (code != std::errc() || end != text_end || port == 0 || port > 65535)
        return wrong(text, "has no port from 1 to 65535");

    LoopbackAddress address{};
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
        address.v6 = {};
        address.v6.sin6_family = AF_INET6;
        address.v6.sin6_port = htons(static_cast<uint16_t>(port));
        address.size = sizeof address.v6;
        if (::inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &address.v6.sin6_addr) !=
            1)
            return wrong(text, "has no numeric address in its brackets");
        if (!IN6_IS_ADDR_LOOPBACK(&address.v6.sin6_addr))
            return wrong(text, "can be reached from other hosts: it is not ::1");
        return address;
    }
    address.v4 = {};
    address.v4.sin_family = AF_INET;
    address.v4.sin_port = htons(static_cast<uint16_t>(port));
    address.size = sizeof address.v4;
    if (::inet_pton(AF_INET, host.c_str(), &address.v4.sin_addr) != 1)
        return wrong(text, "does not begin with a numeric address");
    if (ntohl(address.v4.sin_addr.s_addr) >> 24 != 127)
        return wrong(text, "can be reached from other hosts: it is not in 127.0.0.0/8");
    return address;
}

}  // namespace maru
