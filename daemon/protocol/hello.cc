// The first exchange: versions, capabilities, limits, and the proof of who is calling.
#include <algorithm>

#include "daemon/protocol/service_impl.h"
#include "libmaru/wire/capabilities.h"

namespace maru {
namespace {

std::string version_text(uint16_t major, uint16_t minor) {
    return std::to_string(major) + "." + std::to_string(minor);
}

bool offered(std::string_view name) {
    const wire::Capability *capability = wire::find_capability(name);
    return capability && capability->offered;
}

std::string offered_text() {
    std::string text;
    for (const wire::Capability &capability : wire::kCapabilities)
        if (capability.offered)
            text += (text.empty() ? "" : ", ") + std::string(capability.name);
    return text;
}

}  // namespace

void Service::Impl::on(Call &call, const wire::HelloRequest &request) {
    Connection &connection = call.connection;
    if (request.major != wire::kProtocolMajor) {
        refuse(call, wire::Status::VersionMismatch,
               "the client speaks protocol " + version_text(request.major, request.minor) +
                   ", this marud " + version_text(wire::kProtocolMajor, wire::kProtocolMinor));
        return;
    }
    if (request.client_name.size() > wire::kMaxClientNameBytes) {
        refuse(call, wire::Status::TooLarge,
               "client_name has " + std::to_string(request.client_name.size()) +
                   " bytes; at most " + std::to_string(wire::kMaxClientNameBytes));
        return;
    }
    if (request.required_capabilities.size() > wire::kMaxCapabilities) {
        refuse(call, wire::Status::TooLarge,
               std::to_string(request.required_capabilities.size()) +
                   " required capabilities; at most " + std::to_string(wire::kMaxCapabilities));
        return;
    }
    for (std::string_view name : request.required_capabilities) {
        if (!offered(name)) {
            refuse(call, wire::Status::Unsupported,
                   "capability '" + std::string(name) + "' is not offered; this marud has " +
                       offered_text());
            return;
        }
    }
    connection.client_name = request.client_name;
    ConnectionEvent event =
        connection.nonce ? ConnectionEvent::HelloWithNonce : ConnectionEvent::Hello;
    connection.state = *next_state(connection.state, event);

    wire::HelloReply answer;
    answer.epoch = config.epoch;
    answer.nonce = connection.nonce;
    answer.uid = connection.peer.uid;
    answer.pid = connection.peer.pid;
    for (const wire::Capability &capability : wire::kCapabilities)
        if (capability.offered)
            answer.capabilities.push_back(capability.name);
    answer.limits.in_flight = config.max_in_flight;
    answer.limits.ledger_items = config.max_ledger_items;
    answer.limits.leases = config.max_leases_per_session;
    answer.limits.heartbeat_ms = config.heartbeat_ms;
    answer.limits.session_timeout_ms =
        static_cast<uint32_t>(std::min<TimeNs>(config.session_timeout / kMillisecond, UINT32_MAX));
    answer.limits.spin_us = config.spin_us;
    answer.version = config.version;
    reply(call, std::move(answer));
}

void Service::Impl::on(Call &call, const wire::HelloProofRequest &request) {
    Connection &connection = call.connection;
    if (request.nonce != connection.nonce) {
        refuse(call, wire::Status::Denied, "HelloProof: that is not the nonce of Hello");
        ConnectionId id = connection.id;
        connection_closed(id);
        effects.close_connection(id, "wrong nonce");
        return;
    }
    connection.state = *next_state(connection.state, ConnectionEvent::Proof);
    ok(call);
}

}  // namespace maru
