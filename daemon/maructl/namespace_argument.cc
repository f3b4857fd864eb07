#include "daemon/maructl/namespace_argument.h"

#include <string>

#include "daemon/maructl/arguments.h"
#include "daemon/maructl/listing.h"
#include "daemon/maructl/table.h"
#include "libmaru/base/nearest_name.h"

namespace maru::maructl {

Result<wire::Id> find_namespace(Client &client, std::string_view argument) {
    if (const auto id = parse_id(argument))
        return *id;
    wire::Id found = 0;
    std::vector<std::string> texts;
    const auto listed = for_each_row<wire::NamespaceRow>(client, wire::ListKind::Namespaces, 0,
                                                         [&](const wire::NamespaceRow &row) {
                                                             if (row.text == argument)
                                                                 found = row.namespace_id;
                                                             texts.push_back(row.text);
                                                         });
    if (!listed)
        return listed.error();
    if (found != 0)
        return found;
    const std::vector<std::string_view> known(texts.begin(), texts.end());
    const std::string hint = suggestion(argument, known);
    return Error{0, "namespace '" + printable(argument, 72) +
                        "': marud knows none of this id (0x...) or text" +
                        (hint.empty() ? "; 'maructl namespace' lists them" : hint)};
}

}  // namespace maru::maructl
