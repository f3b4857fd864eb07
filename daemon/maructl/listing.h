// All pages of a listing, row by row.
#pragma once

#include <vector>

#include "daemon/maructl/client.h"

namespace maru::maructl {

template <typename Row, typename Fn>
Result<void> for_each_row(Client &client, wire::ListKind kind, wire::Id namespace_id, Fn &&fn) {
    uint64_t cursor = 0;
    do {
        const auto reply =
            client.call_for<wire::ListReply>(wire::ListRequest{kind, cursor, namespace_id});
        if (!reply)
            return reply.error();
        const auto *rows = std::get_if<std::vector<Row>>(&(*reply)->rows);
        if (!rows)
            return Error{0, "list: marud answered with rows of another kind"};
        for (const Row &row : *rows)
            fn(row);
        if ((*reply)->next_cursor == cursor && cursor != 0)
            return Error{0, "list: marud repeats a page"};  // else this would never end
        cursor = (*reply)->next_cursor;
    } while (cursor != 0);
    return {};
}

}  // namespace maru::maructl
