#include "daemon/maructl/run.h"

#include <cerrno>
#include <ostream>

#include "daemon/maructl/arguments.h"
#include "daemon/maructl/table.h"

namespace maru::maructl {

std::optional<Client> Context::connect(int *ret_exit) {
    auto fd = open_socket(options, deadline_after(options.timeout_ns));
    if (!fd) {
        *ret_exit = fail(kCannotConnect, describe(fd.error()));
        return std::nullopt;
    }
    Client client(std::move(*fd), options.timeout_ns);
    if (auto greeted = client.hello(); !greeted) {
        *ret_exit = fail(kCannotConnect, describe(greeted.error()));
        return std::nullopt;
    }
    return client;
}

int Context::fail(int exit, std::string_view message) const {
    err << "maructl: " << printable(message, wire::kMaxFrameBytes) << '\n';
    return exit;
}

int Context::fail(const Error &error) const { return fail(kFailed, describe(error)); }

int run(std::span<const char *const> words, std::ostream &out, std::ostream &err,
        const OpenSocket &open_socket) {
    const auto line = parse_command_line(words);
    if (!line) {
        err << "maructl: " << printable(line.error().message, wire::kMaxFrameBytes) << '\n';
        return kUsage;
    }
    int exit = kOk;
    switch (line->kind) {
        case CommandLine::Kind::Help:
            out << (line->verb ? help_text(*line->verb) : help_text());
            break;
        case CommandLine::Kind::Version:
            out << "maructl " << MARU_VERSION << '\n';
            break;
        case CommandLine::Kind::Run: {
            Context context{line->options, out, err, open_socket};
            exit = line->verb->run(context);
            break;
        }
    }
    out.flush();
    // A full disk or a closed pipe must not look like a short, complete answer.
    if (!out && exit == kOk) {
        err << "maructl: the output could not be written\n";
        return kFailed;
    }
    return exit;
}

}  // namespace maru::maructl
