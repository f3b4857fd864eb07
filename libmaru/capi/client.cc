#include "maru/client.h"

#include <errno.h>
#include <unistd.h>

#include <cstdlib>

#include "libmaru/capi/handles.h"
#include "libmaru/wire/limits.h"

namespace maru::capi {
namespace {

// The first that is there: a system service is preferred to the user's own.
std::string default_socket() {
    if (const char *named = std::getenv("MARU_SOCKET"); named && *named)
        return named;
    const char *system = "/run/maru/marud.sock";
    if (::access(system, F_OK) == 0)
        return system;
    if (const char *runtime = std::getenv("XDG_RUNTIME_DIR"); runtime && *runtime) {
        std::string user = std::string(runtime) + "/maru/marud.sock";
        if (::access(user.c_str(), F_OK) == 0)
            return user;
    }
    return system;
}

std::string default_name() {
    std::string name(program_invocation_short_name);
    if (name.size() > wire::kMaxClientNameBytes)
        name.resize(wire::kMaxClientNameBytes);
    for (char &c : name)
        if (c < 0x20 || c > 0x7e)
            c = '?';
    return name;
}

int open_client(const maru_client_options *options, maru_client **ret_client) {
    maru_client_options in{};
    if (int bad = read_options(options, "options", offsetof(maru_client_options, name), in))
        return bad;
    if (!ret_client)
        return fail(EINVAL, "ret_client: must not be NULL");
    const size_t engine = in.engine ? std::strlen(in.engine) : 0;
    if (engine < 1 || engine > wire::kMaxEngineIdBytes)
        return fail(EINVAL, "options->engine: is " + std::to_string(engine) +
                                " bytes, must be 1 to " + std::to_string(wire::kMaxEngineIdBytes));
    if (in.name && std::strlen(in.name) > wire::kMaxClientNameBytes)
        return fail(EINVAL, "options->name: is " + std::to_string(std::strlen(in.name)) +
                                " bytes, must be at most " +
                                std::to_string(wire::kMaxClientNameBytes));
    if (in.role != MARU_ROLE_WORKER && in.role != MARU_ROLE_SCHEDULER)
        return fail(EINVAL, "options->role: is " + std::to_string(in.role) +
                                ", must be MARU_ROLE_WORKER or MARU_ROLE_SCHEDULER");
    client::SessionOptions session_options;
    session_options.socket_path = in.socket_path ? in.socket_path : default_socket();
    session_options.engine = in.engine;
    session_options.name = in.name && *in.name ? in.name : default_name();
    session_options.role = in.role == MARU_ROLE_WORKER ? wire::Role::Worker : wire::Role::Scheduler;
    if (in.timeout_ms)
        session_options.timeout_ms = in.timeout_ms;
    if (in.connect_ms)
        session_options.connect_ms = in.connect_ms;
    session_options.spin_us = in.spin_us;
    auto session = client::Session::open(session_options);
    if (!session)
        return fail(session.error());
    *ret_client = outside(session->release());
    return 0;
}

}  // namespace
}  // namespace maru::capi

using namespace maru;
using namespace maru::capi;

extern "C" {

int maru_client_open(const struct maru_client_options *options, maru_client **ret_client) {
    return abi_guard([&]() -> int { return open_client(options, ret_client); });
}

int maru_client_close(maru_client *client) {
    return abi_guard([&]() -> int {
        if (!client)
            return 0;
        if (int bad = check(client, "client"))
            return bad;
        if (auto outcome = inside(client)->close(); outcome.value != 0)
            return static_cast<int>(report(outcome));
        delete inside(client);
        return 0;
    });
}

int maru_client_info(maru_client *client, struct maru_client_info *info) {
    return abi_guard([&]() -> int {
        if (int bad = check(client, "client"))
            return bad;
        if (!info)
            return fail(EINVAL, "info: must not be NULL");
        const client::Session::Info known = inside(client)->info();
        struct maru_client_info out {};
        out.state = static_cast<uint32_t>(known.state);
        out.epoch = known.epoch;
        out.session = known.id;
        out.reconnects = known.reconnects;
        out.republished = known.republished;
        out.leases = known.leases;
        out.unknown_commits = known.unknown_commits;
        out.uid = known.uid;
        out.probe_keys_max = known.probe_keys;
        known.server_version.copy(out.server_version, sizeof out.server_version - 1);
        return write_info(out, info, "info", offsetof(struct maru_client_info, session));
    });
}

int maru_client_set_timeout(maru_client *client, uint32_t timeout_ms) {
    return abi_guard([&]() -> int {
        if (int bad = check(client, "client"))
            return bad;
        inside(client)->set_timeout(timeout_ms ? timeout_ms : client::SessionOptions().timeout_ms);
        return 0;
    });
}

int maru_client_bind(maru_client *client, uint64_t session) {
    return abi_guard([&]() -> int {
        if (int bad = check(client, "client"))
            return bad;
        inside(client)->probe_for(session);
        return 0;
    });
}

static_assert(MARU_NAMESPACE_MAX == wire::kMaxNamespaceBytes);

int maru_client_worker(maru_client *client, uint64_t *ret_session, char *ret_text, size_t size) {
    return abi_guard([&]() -> int {
        if (int bad = check(client, "client"))
            return bad;
        if (!ret_session || !ret_text)
            return fail(EINVAL, ret_session ? "ret_text: must not be NULL"
                                            : "ret_session: must not be NULL");
        if (size <= MARU_NAMESPACE_MAX)
            return fail(EINVAL, "size: is " + std::to_string(size) + ", must be more than " +
                                    std::to_string(MARU_NAMESPACE_MAX));
        auto worker = inside(client)->engine_worker();
        if (!worker)
            return fail(worker.error());
        if (worker->session == 0)
            return fail(ENOENT,
                        "engine '" + inside(client)->options().engine + "' has no attached worker");
        *ret_session = worker->session;
        ret_text[worker->namespace_text.copy(ret_text, MARU_NAMESPACE_MAX)] = '\0';
        return 0;
    });
}

int maru_client_has_capability(maru_client *client, const char *name) {
    return abi_guard([&]() -> int {
        if (int bad = check(client, "client"))
            return bad;
        if (!name)
            return fail(EINVAL, "name: must not be NULL");
        return inside(client)->has_capability(name) ? 1 : 0;
    });
}

int maru_namespace_open(maru_client *client, const char *text, maru_namespace **ret_ns) {
    return abi_guard([&]() -> int {
        if (int bad = check(client, "client"))
            return bad;
        if (!text || !ret_ns)
            return fail(EINVAL, text ? "ret_ns: must not be NULL" : "text: must not be NULL");
        const size_t length = std::strlen(text);
        if (length < 1 || length > wire::kMaxNamespaceBytes)
            return fail(EINVAL, "text: is " + std::to_string(length) + " bytes, must be 1 to " +
                                    std::to_string(wire::kMaxNamespaceBytes));
        auto ns = inside(client)->open_namespace(text);
        if (!ns)
            return fail(ns.error());
        *ret_ns = outside(*ns);
        return 0;
    });
}

int maru_client_describe(maru_client *client, maru_namespace *ns,
                         const struct maru_schema *schema) {
    return abi_guard([&]() -> int {
        if (int bad = check(client, "client"))
            return bad;
        if (int bad = check(ns, "ns"))
            return bad;
        if (&inside(ns)->session != inside(client))
            return fail(EINVAL, "ns: belongs to another client");
        maru_schema in{};
        if (int bad = read_options(schema, "schema", sizeof(maru_schema), in))
            return bad;
        const size_t format = in.format ? std::strlen(in.format) : 0;
        if (format < 1 || format > wire::kMaxFormatBytes)
            return fail(EINVAL, "schema->format: is " + std::to_string(format) +
                                    " bytes, must be 1 to " +
                                    std::to_string(wire::kMaxFormatBytes));
        if (in.object_bytes == 0)
            return fail(EINVAL, "schema->object_bytes: must be at least 1");
        return static_cast<int>(
            report(inside(client)->describe(*inside(ns), in.object_bytes, in.format)));
    });
}

}  // extern "C"
