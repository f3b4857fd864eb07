// The verbs that show tables: pool, session, namespace, object, lease.
#include <ostream>

#include "daemon/maructl/listing.h"
#include "daemon/maructl/namespace_argument.h"
#include "daemon/maructl/render.h"
#include "daemon/maructl/verb.h"

namespace maru::maructl {

namespace {

// A table is written piece by piece, so that a million objects need no memory for a million rows.
constexpr size_t kRowsPerPiece = 2048;

template <typename Row>
int list(Context &context, wire::ListKind kind, const char *plural, wire::Id namespace_id,
         Client &client) {
    Table table = make_table<Row>();
    JsonWriter json(context.out);
    if (context.options.json) {
        json.begin_object();
        json.key(plural);
        json.begin_array();
    }
    const auto listed = for_each_row<Row>(client, kind, namespace_id, [&](const Row &row) {
        if (context.options.json)
            return write_object(json, row);
        add_row(table, row, context.options.exact);
        if (table.pending() >= kRowsPerPiece)
            table.flush(context.out);
    });
    if (!listed)
        return context.fail(listed.error());
    if (context.options.json) {
        json.end_array();
        json.end_object();
    } else {
        table.flush(context.out);
    }
    return kOk;
}

template <typename Row>
int list(Context &context, wire::ListKind kind, const char *plural) {
    int exit = kOk;
    auto client = context.connect(&exit);
    return client ? list<Row>(context, kind, plural, 0, *client) : exit;
}

}  // namespace

int verb_session(Context &context) {
    return list<wire::SessionRow>(context, wire::ListKind::Sessions, "sessions");
}

int verb_pool(Context &context) {
    return list<wire::PoolRow>(context, wire::ListKind::Pools, "pools");
}

int verb_namespace(Context &context) {
    return list<wire::NamespaceRow>(context, wire::ListKind::Namespaces, "namespaces");
}

int verb_lease(Context &context) {
    return list<wire::LeaseRow>(context, wire::ListKind::Leases, "leases");
}

int verb_object(Context &context) {
    int exit = kOk;
    auto client = context.connect(&exit);
    if (!client)
        return exit;
    wire::Id id = 0;
    if (!context.options.arguments.empty()) {
        const auto found =
            find_namespace(*client, context.options.arguments[0], context.options.uid);
        if (!found)
            return context.fail(found.error());
        id = *found;
    }
    return list<wire::ObjectRow>(context, wire::ListKind::Objects, "objects", id, *client);
}

}  // namespace maru::maructl
