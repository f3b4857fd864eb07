// The table of verbs, and those that ask or change one thing.
#include <ostream>

#include "daemon/maructl/arguments.h"
#include "daemon/maructl/namespace_argument.h"
#include "daemon/maructl/render.h"
#include "daemon/maructl/verb.h"

namespace maru::maructl {

namespace {

constexpr Verb kVerbs[] = {
    {"status", "", 0, 0, 0, "Show marud's state and totals", verb_status},
    {"session", "", 0, 0, 0, "List sessions: engine, process, age, leases", verb_session},
    {"pool", "", 0, 0, 0, "List pools and what their bytes are used for", verb_pool},
    {"namespace", "", 0, 0, 0, "List namespaces and whose they are", verb_namespace},
    {"object", "[NAMESPACE]", 0, 1, kUid, "List objects, one line per replica", verb_object},
    {"lease", "", 0, 0, 0, "List leases and who holds them", verb_lease},
    {"usage", "[POOL]", 0, 1, 0, "Show the bytes of a pool, or of your uid", verb_usage},
    {"explain", "NAMESPACE OBJECT --engine ID", 2, 2, kEngine | kUid,
     "Tell why an engine can or cannot read an object (DIGEST[/SHARD[/PART]])", verb_explain},
    {"retire", "NAMESPACE [OBJECT] | --namespace NAMESPACE | --segment POOL:N", 0, 2,
     kNamespace | kSegment | kUid, "Retire an object, or all of a namespace or of a shared segment",
     verb_retire},
    {"drain", "on|off", 1, 1, 0, "Admit no new sessions, pools and commits, or do so again",
     verb_drain},
    {"reload", "", 0, 0, 0, "Read marud's configuration again", verb_reload},
    {"bench", "", 0, 0, kCount, "Measure round trips to this marud and this host's copy rate",
     verb_bench},
    {"doctor", "", 0, 0, 0, "Examine this host: what Maru lacks here, and what to do about it",
     verb_doctor},
    {"completion", "bash|zsh|fish", 1, 1, 0, "Print a shell's completion of maructl",
     verb_completion},
    {"metrics", "[PREFIX]", 0, 1, 0, "Show what marud counts, in Prometheus' text format",
     verb_metrics},
    {"version", "", 0, 0, 0, "Show the versions of maructl and marud", verb_version},
};

}  // namespace

std::span<const Verb> verbs() { return kVerbs; }

int verb_status(Context &context) {
    int exit = kOk;
    auto client = context.connect(&exit);
    if (!client)
        return exit;
    const auto status = client->call_for<wire::StatusReply>(wire::StatusRequest{});
    if (!status)
        return context.fail(status.error());
    if (context.options.json) {
        JsonWriter json(context.out);
        write_object(json, **status);
    } else {
        write_values(context.out, **status, context.options.exact);
    }
    return kOk;
}

int verb_usage(Context &context) {
    wire::Id pool = 0;
    if (!context.options.arguments.empty()) {
        const auto id = parse_id(context.options.arguments[0]);
        if (!id)
            return context.fail(kUsage, id.error().message);
        pool = *id;
    }
    int exit = kOk;
    auto client = context.connect(&exit);
    if (!client)
        return exit;
    const auto usage = client->call_for<wire::UsageReply>(wire::UsageRequest{pool});
    if (!usage)
        return context.fail(usage.error());
    if (context.options.json) {
        JsonWriter json(context.out);
        write_object(json, **usage);
    } else {
        write_values(context.out, **usage, context.options.exact);
    }
    return kOk;
}

int verb_explain(Context &context) {
    if (!context.options.engine_given)
        return context.fail(kUsage, "explain: --engine ID is missing");
    const auto key = parse_key(context.options.arguments[1]);
    if (!key)
        return context.fail(kUsage, key.error().message);
    int exit = kOk;
    auto client = context.connect(&exit);
    if (!client)
        return exit;
    const auto id = find_namespace(*client, context.options.arguments[0], context.options.uid);
    if (!id)
        return context.fail(id.error());
    const auto reply = client->call_for<wire::ExplainReply>(
        wire::ExplainRequest{*id, *key, context.options.engine, context.options.uid});
    if (!reply)
        return context.fail(reply.error());
    const wire::ExplainReply &explained = **reply;
    if (context.options.json) {
        JsonWriter json(context.out);
        json.begin_object();
        json.key("hit");
        json.flag(explained.hit);
        json.key("summary");
        json.text(explained.summary);
        json.key("replicas");
        json.begin_array();
        for (const auto &row : explained.replicas)
            write_object(json, row);
        json.end_array();
        json.end_object();
        return kOk;
    }
    context.out << (explained.hit ? "hit" : "miss");
    if (!explained.summary.empty())
        context.out << ": " << printable(explained.summary, wire::kMaxFrameBytes);
    context.out << '\n';
    if (explained.replicas.empty())
        return kOk;
    Table table = make_table<wire::ExplainRow>();
    for (const auto &row : explained.replicas)
        add_row(table, row, context.options.exact);
    table.flush(context.out);
    return kOk;
}

int verb_retire(Context &context) {
    const Options &options = context.options;
    const bool segment = options.segment_pool != 0;
    const int ways = segment + !options.namespace_name.empty() + !options.arguments.empty();
    if (ways != 1)
        return context.fail(kUsage, std::string("retire: ") +
                                        (ways ? "only one is allowed of" : "argument is missing:") +
                                        " NAMESPACE [OBJECT], --namespace and --segment");
    std::optional<wire::Key> key;
    if (options.arguments.size() > 1) {
        const auto parsed = parse_key(options.arguments[1]);
        if (!parsed)
            return context.fail(kUsage, parsed.error().message);
        key = *parsed;
    }
    int exit = kOk;
    auto client = context.connect(&exit);
    if (!client)
        return exit;
    wire::RequestBody request = wire::RetireSegmentRequest{options.segment_pool, options.segment};
    if (!segment) {
        const auto id = find_namespace(
            *client, options.arguments.empty() ? options.namespace_name : options.arguments[0],
            options.uid);
        if (!id)
            return context.fail(id.error());
        request = wire::AdminRetireRequest{*id, key};
    }
    wire::CountReply retired;
    while (true) {
        const auto reply = client->call_for<wire::CountReply>(request);
        if (!reply)
            return context.fail(reply.error());
        retired.count += (*reply)->count;
        retired.pending += (*reply)->pending;
        if ((*reply)->count < wire::kMaxRetired)
            break;
    }
    if (context.options.json) {
        JsonWriter json(context.out);
        json.begin_object();
        json.key("retired");
        json.number(retired.count);
        json.key("pending");
        json.number(retired.pending);
        json.end_object();
    } else {
        context.out << "retired " << retired.count << " replicas, " << retired.pending
                    << " of them still have readers\n";
    }
    return kOk;
}

int verb_drain(Context &context) {
    const std::string &word = context.options.arguments[0];
    if (word != "on" && word != "off")
        return context.fail(kUsage, "drain: '" + word + "', must be 'on' or 'off'");
    int exit = kOk;
    auto client = context.connect(&exit);
    if (!client)
        return exit;
    const bool enable = word == "on";
    if (const auto reply = client->call(wire::DrainRequest{enable}); !reply)
        return context.fail(reply.error());
    if (context.options.json) {
        JsonWriter json(context.out);
        json.begin_object();
        json.key("draining");
        json.flag(enable);
        json.end_object();
    } else {
        context.out << (enable ? "draining: nothing new is admitted\n" : "no longer draining\n");
    }
    return kOk;
}

int verb_reload(Context &context) {
    int exit = kOk;
    auto client = context.connect(&exit);
    if (!client)
        return exit;
    if (const auto reply = client->call(wire::ReloadRequest{}); !reply)
        return context.fail(reply.error());
    if (context.options.json) {
        JsonWriter json(context.out);
        json.begin_object();
        json.key("reloaded");
        json.flag(true);
        json.end_object();
    } else {
        context.out << "configuration reloaded\n";
    }
    return kOk;
}

// Says its own version also where marud is not there: that is often when somebody asks.
int verb_version(Context &context) {
    std::string marud, reason;
    auto client = [&]() -> Result<Client> {
        auto fd = context.open_socket(context.options, deadline_after(context.options.timeout_ns));
        if (!fd)
            return fd.error();
        Client fresh(std::move(*fd), context.options.timeout_ns);
        if (auto greeted = fresh.hello(); !greeted)
            return greeted.error();
        return fresh;
    }();
    if (client)
        marud = client->marud_version();
    else
        reason = describe(client.error());
    if (context.options.json) {
        JsonWriter json(context.out);
        json.begin_object();
        json.key("maructl");
        json.text(MARU_VERSION);
        json.key("marud");
        if (client)
            json.text(marud);
        else
            json.null();
        json.end_object();
    } else {
        context.out << "maructl " << MARU_VERSION << '\n';
        if (client)
            context.out << "marud   " << printable(marud, 72) << '\n';
    }
    if (!client)
        context.err << "maructl: marud: " << printable(reason, wire::kMaxFrameBytes) << '\n';
    return kOk;
}

}  // namespace maru::maructl
