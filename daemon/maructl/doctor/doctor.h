// maructl doctor: looks at the host as a user of Maru would meet it, and says what to do.
//
// Works without marud and without privileges, changes nothing, and never judges by a version number.
#pragma once

#include "daemon/maructl/doctor/subject.h"

namespace maru::maructl {

// All checks, in the order they are shown.
Findings examine(const Subject &subject);

}  // namespace maru::maructl
