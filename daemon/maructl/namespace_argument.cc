#include "daemon/maructl/namespace_argument.h"

#include <string>

#include "daemon/maructl/arguments.h"
#include "daemon/maructl/columns.h"
#include "daemon/maructl/listing.h"
#include "daemon/maructl/table.h"
#include "libmaru/base/nearest_name.h"

namespace maru::maructl {

Result<wire::Id> find_namespace(Client &client, std::string_view argument, uint32_t uid) {
    if (const auto id = parse_id(argument))
        return *id;
    std::vector<wire::NamespaceRow> found;
    std::vector<std::string> texts;
    const auto listed = for_each_row<wire::NamespaceRow>(
        client, wire::ListKind::Namespaces, 0, [&](const wire::NamespaceRow &row) {
            if (uid != UINT32_MAX && row.uid != uid)
                return;
            if (row.text == argument)
                found.push_back(row);
            texts.push_back(row.text);
        });
    if (!listed)
        return listed.error();
    if (found.size() == 1)
        return found[0].namespace_id;
    if (!found.empty()) {
        std::string whose;
        for (const wire::NamespaceRow &row : found)
            whose += (whose.empty() ? "" : ", ") + id_text(row.namespace_id) + " of uid " +
                     std::to_string(row.uid);
        return Error{0, "namespace '" + printable(argument, 72) +
                            "': several users have it: " + whose + "; give its id or --uid"};
    }
    const std::vector<std::string_view> known(texts.begin(), texts.end());
    const std::string hint = suggestion(argument, known);
    return Error{0, "namespace '" + printable(argument, 72) +
                        "': marud knows none of this id (0x...) or text" +
                        (hint.empty() ? "; 'maructl namespace' lists them" : hint)};
}

}  // namespace maru::maructl
