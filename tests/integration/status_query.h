// What marud says of itself, asked over a connection of its own.
#pragma once

#include <string>

#include "libmaru/wire/messages.h"

namespace maru::test {

// Values only: texts of the reply are gone. Throws std::runtime_error when marud does not answer.
wire::StatusReply query_status(const std::string &socket);

// Waits until nothing is charged to anybody; "" or what still is after `timeout_ms`.
std::string wait_uncharged(const std::string &socket, int timeout_ms);

}  // namespace maru::test
