#include "tests/integration/status_query.h"

#include <unistd.h>

#include <stdexcept>

#include "tests/integration/wire_client.h"

namespace maru::test {

wire::StatusReply query_status(const std::string &socket) {
    WireClient client(socket);
    if (!client.hello())
        throw std::runtime_error("marud at '" + socket + "' does not greet");
    const auto *reply = client.ask<wire::StatusReply>(wire::StatusRequest{});
    if (!reply)
        throw std::runtime_error("marud at '" + socket +
                                 "' does not tell its status: " + client.message());
    wire::StatusReply status = *reply;
    status.version = {};
    status.fdstore = {};
    return status;
}

std::string wait_uncharged(const std::string &socket, int timeout_ms) {
    wire::StatusReply status;
    for (int waited = 0; waited <= timeout_ms; waited += 10) {
        status = query_status(socket);
        if (status.host_reserved_bytes == 0 && status.leases == 0)
            return {};
        ::usleep(10'000);
    }
    return std::to_string(status.host_reserved_bytes) + " bytes charged (" +
           std::to_string(status.unproven_bytes) + " unproven), " + std::to_string(status.leases) +
           " leases, " + std::to_string(status.sessions) + " sessions after " +
           std::to_string(timeout_ms) + " ms";
}

}  // namespace maru::test
