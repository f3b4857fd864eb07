// Statuses of the protocol as the errnos that the C interface documents.
#pragma once

#include "libmaru/wire/records.h"

namespace maru::client {

// A positive errno; 0 for Ok and Committed.
int errno_of(wire::Status status);

}  // namespace maru::client
