// What marud counts, over its metrics socket.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <ostream>

#include "daemon/maructl/json_writer.h"
#include "daemon/maructl/verb.h"
#include "daemon/metrics/exposition.h"
#include "libmaru/base/socket_path.h"
#include "libmaru/wire/packet_socket.h"

namespace maru::maructl {

namespace {

constexpr size_t kMaxAnswer = 16u << 20;

// The metrics socket stands beside the one of clients; it may also be named itself.
Result<UniqueFd> connect_metrics(const Options &options, int64_t deadline_ns) {
    std::string tried;
    for (const std::string &path : socket_paths(options.socket)) {
        auto named = wire::connect_stream(path, deadline_ns);
        if (named)
            return named;
        const std::string beside = path.substr(0, path.rfind('/') + 1) + "metrics.sock";
        auto fd = wire::connect_stream(beside, deadline_ns);
        if (fd)
            return fd;
        tried += (tried.empty() ? "" : "; ") + describe(fd.error());
    }
    return Error{0, tried + "; is metrics.socket \"off\", or elsewhere (then --socket names it)?"};
}

Result<std::string> ask(int socket, std::string_view request, int64_t deadline_ns) {
    while (!request.empty()) {
        if (auto ready = wire::wait_socket(socket, POLLOUT, deadline_ns); !ready)
            return ready.error();
        const ssize_t sent =
            ::send(socket, request.data(), request.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            return Error{errno, "ask for metrics"};
        request.remove_prefix(sent > 0 ? static_cast<size_t>(sent) : 0);
    }
    std::string answer;
    char block[16384];
    for (;;) {
        if (auto ready = wire::wait_socket(socket, POLLIN, deadline_ns); !ready)
            return ready.error();
        const ssize_t got = ::recv(socket, block, sizeof block, MSG_DONTWAIT);
        if (got == 0)
            return answer;
        if (got < 0 && errno != EAGAIN && errno != EINTR)
            return Error{errno, "read the metrics"};
        answer.append(block, got > 0 ? static_cast<size_t>(got) : 0);
        if (answer.size() > kMaxAnswer)
            return Error{0, "the answer does not end"};
    }
}

// The body of a whole answer with status 200.
Result<std::string> body_of(const std::string &answer) {
    const size_t end = answer.find("\r\n\r\n");
    if (answer.compare(0, 9, "HTTP/1.1 ") != 0 || end == answer.npos)
        return Error{0, "whoever listens there does not answer as marud does"};
    const std::string head = answer.substr(0, end + 2);
    if (head.compare(9, 4, "200 ") != 0)
        return Error{0, "marud answered: " + head.substr(9, head.find('\r') - 9)};
    const std::string body = answer.substr(end + 4);
    if (head.find("\r\nContent-Length: " + std::to_string(body.size()) + "\r\n") == head.npos)
        return Error{0, "the answer was cut off"};
    return body;
}

void write_json(std::ostream &out, const std::vector<metrics::ReadFamily> &families) {
    JsonWriter json(out);
    json.begin_object();
    json.key("metrics");
    json.begin_array();
    for (const metrics::ReadFamily &family : families) {
        json.begin_object();
        json.key("name");
        json.text(family.name);
        json.key("type");
        json.text(family.type);
        json.key("help");
        json.text(family.help);
        json.key("samples");
        json.begin_array();
        for (const metrics::ReadSample &sample : family.samples) {
            json.begin_object();
            json.key("name");
            json.text(sample.name);
            json.key("labels");
            json.begin_object();
            for (const auto &[label, value] : sample.labels) {
                json.key(label);
                json.text(value);
            }
            json.end_object();
            json.key("value");
            json.decimal(sample.value);
            json.end_object();
        }
        json.end_array();
        json.end_object();
    }
    json.end_array();
    json.end_object();
}

}  // namespace

int verb_metrics(Context &context) {
    const Options &options = context.options;
    const int64_t deadline = deadline_after(options.timeout_ns);
    const auto socket = connect_metrics(options, deadline);
    if (!socket)
        return context.fail(kCannotConnect, describe(socket.error()));
    const auto answer = ask(socket->get(),
                            "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain\r\n"
                            "Connection: close\r\n\r\n",
                            deadline);
    if (!answer)
        return context.fail(answer.error());
    const auto text = body_of(*answer);
    if (!text)
        return context.fail(text.error());
    auto families = metrics::read_exposition(*text);
    if (!families)
        return context.fail(kFailed, "what marud sent are no metrics: " + families.error().message);
    if (!options.arguments.empty()) {
        const std::string &prefix = options.arguments[0];
        std::erase_if(*families, [&](const metrics::ReadFamily &family) {
            return family.name.substr(0, prefix.size()) != prefix;
        });
        if (families->empty())
            return context.fail(kFailed, "no metric begins with '" + prefix + "'");
    }
    if (options.json) {
        write_json(context.out, *families);
        return kOk;
    }
    for (const metrics::ReadFamily &family : *families) {
        context.out << family.head << '\n';
        for (const metrics::ReadSample &sample : family.samples)
            context.out << sample.line << '\n';
    }
    return kOk;
}

}  // namespace maru::maructl
