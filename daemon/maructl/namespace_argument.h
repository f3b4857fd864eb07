// A namespace on the command line: its id (0x...) or its full text.
#pragma once

#include <string_view>

#include "daemon/maructl/client.h"

namespace maru::maructl {

// A text is looked up among marud's namespaces; the error names the nearest.
Result<wire::Id> find_namespace(Client &client, std::string_view argument);

}  // namespace maru::maructl
