#include "daemon/maructl/doctor/doctor.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <ostream>

#include "daemon/maructl/json_writer.h"
#include "daemon/maructl/listing.h"
#include "daemon/maructl/table.h"
#include "daemon/maructl/verb.h"
#include "libmaru/base/socket_path.h"

namespace maru::maructl {

namespace {

constexpr Check kChecks[] = {
    check_socket,    check_runtime_directory, check_fd_store, check_kernel,
    check_shmem_thp, check_huge_pages,        check_numa,     check_memory,
    check_limits,    check_io_uring,          check_dax,
};

Result<void> ask_workers(Client &client, MarudFacts &facts) {
    std::map<wire::Id, WorkerFacts> workers;
    auto sessions = for_each_row<wire::SessionRow>(
        client, wire::ListKind::Sessions, 0, [&](const wire::SessionRow &row) {
            if (row.role == wire::Role::Worker && row.state == "attached")
                workers[row.session] = {row.pid, row.engine};
        });
    if (!sessions)
        return sessions;
    auto pools = for_each_row<wire::PoolRow>(
        client, wire::ListKind::Pools, 0, [&](const wire::PoolRow &row) {
            if (auto worker = workers.find(row.session); worker != workers.end()) {
                worker->second.capacity_bytes += row.usage.capacity_bytes;
                worker->second.populated_bytes += row.usage.populated_bytes;
            }
        });
    for (auto &[id, worker] : workers)
        if (worker.capacity_bytes > 0)
            facts.workers.push_back(std::move(worker));
    return pools;
}

Result<void> ask(Client &client, MarudFacts &facts) {
    if (auto greeted = client.hello(); !greeted)
        return greeted;
    const auto status = client.call_for<wire::StatusReply>(wire::StatusRequest{});
    if (!status)
        return status.error();
    facts.version = (*status)->version;
    facts.pid = (*status)->pid;
    facts.fdstore = (*status)->fdstore;
    facts.host_limit_bytes = (*status)->host_limit_bytes;
    facts.host_reserved_bytes = (*status)->host_reserved_bytes;
    return ask_workers(client, facts);
}

MarudFacts ask_marud(Context &context) {
    MarudFacts facts;
    auto fd = context.open_socket(context.options, deadline_after(context.options.timeout_ns));
    if (!fd) {
        facts.error = describe(fd.error());
        return facts;
    }
    facts.connected = true;
    Client client(std::move(*fd), context.options.timeout_ns);
    const auto asked = ask(client, facts);
    facts.answered = asked.ok();
    if (!asked)
        facts.error = describe(asked.error());
    return facts;
}

void write_json(std::ostream &out, const Findings &findings) {
    JsonWriter json(out);
    json.begin_object();
    for (const Severity severity : {Severity::Problem, Severity::Warning, Severity::Note}) {
        json.key(std::string(severity_name(severity)) + "s");
        json.number(findings.count(severity));
    }
    json.key("findings");
    json.begin_array();
    for (const Finding &finding : findings.all()) {
        json.begin_object();
        json.key("check");
        json.text(finding.check);
        json.key("severity");
        json.text(severity_name(finding.severity));
        json.key("found");
        json.text(finding.found);
        json.key("remedy");
        json.text(finding.remedy);
        json.key("man");
        json.text(finding.man);
        json.end_object();
    }
    json.end_array();
    json.end_object();
}

// Behind `head`, broken at spaces, so that it reads well on a terminal of 100 columns.
void write_paragraph(std::ostream &out, std::string head, const std::string &text) {
    constexpr size_t kIndent = 30, kWidth = 68;
    std::string_view rest = text;
    do {
        size_t end = rest.size();
        if (end > kWidth) {
            const size_t space = rest.rfind(' ', kWidth);
            end = std::min(space == rest.npos ? rest.find(' ') : space, rest.size());
        }
        head.resize(kIndent, ' ');
        out << head << rest.substr(0, end) << '\n';
        head.clear();
        rest.remove_prefix(std::min(end + 1, rest.size()));
    } while (!rest.empty());
}

void write_text(std::ostream &out, const Findings &findings) {
    for (const Finding &finding : findings.all()) {
        std::string head = severity_name(finding.severity);
        head.resize(9, ' ');
        write_paragraph(out, head + finding.check, printable(finding.found, wire::kMaxFrameBytes));
        if (finding.severity == Severity::Ok)
            continue;
        write_paragraph(out, "", printable(finding.remedy, wire::kMaxFrameBytes));
        write_paragraph(out, "", "See " + finding.man + ".");
    }
    out << '\n';
    for (const Severity severity : {Severity::Problem, Severity::Warning, Severity::Note}) {
        const size_t count = findings.count(severity);
        out << count << ' ' << severity_name(severity) << (count == 1 ? "" : "s")
            << (severity == Severity::Note ? "\n" : ", ");
    }
}

}  // namespace

std::string errno_text(int code) {
    const char *name = ::strerrorname_np(code);
    const char *description = ::strerrordesc_np(code);
    return std::string(name ? name : std::to_string(code)) +
           (description ? std::string(" (") + description + ")" : "");
}

Findings examine(const Subject &subject) {
    Findings findings;
    for (const Check check : kChecks)
        check(subject, findings);
    return findings;
}

int verb_doctor(Context &context) {
    const Host host;
    const MarudFacts marud = ask_marud(context);
    const Findings findings =
        examine({host, marud, socket_paths(context.options.socket), MARU_VERSION});
    if (context.options.json)
        write_json(context.out, findings);
    else
        write_text(context.out, findings);
    return findings.count(Severity::Problem) == 0 ? kOk : kFailed;
}

}  // namespace maru::maructl
