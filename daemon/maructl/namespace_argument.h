// A namespace on the command line: its id (0x...) or its full text.
#pragma once

#include <string_view>

#include "daemon/maructl/client.h"

namespace maru::maructl {

// A text is looked up among the namespaces that marud shows the caller, of `uid` only unless that is
// UINT32_MAX. Every user may have one of the same text: then the id or the uid must be given, and
// the error names them. For an unknown one it names the nearest.
Result<wire::Id> find_namespace(Client &client, std::string_view argument, uint32_t uid);

}  // namespace maru::maructl
