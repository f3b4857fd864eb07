#include "daemon/maructl/option.h"

#include <string>

#include "daemon/maructl/arguments.h"
#include "libmaru/base/duration_text.h"
#include "libmaru/wire/limits.h"

namespace maru::maructl {

namespace {

Result<void> set_number(std::string_view value, std::string_view what, uint32_t max,
                        uint32_t *ret) {
    const auto number = parse_number(value, what, max);
    if (!number)
        return number.error();
    *ret = static_cast<uint32_t>(*number);
    return {};
}

Result<void> set_json(CommandLine &line, std::string_view) {
    line.options.json = true;
    return {};
}

Result<void> set_bytes(CommandLine &line, std::string_view) {
    line.options.exact = true;
    return {};
}

Result<void> set_socket(CommandLine &line, std::string_view value) {
    if (value.empty())
        return Error{0, "--socket: empty, expected a path"};
    line.options.socket = value;
    return {};
}

Result<void> set_timeout(CommandLine &line, std::string_view value) {
    const auto ns = parse_duration(value);
    if (!ns)
        return Error{0, "--timeout: " + ns.error().message};
    line.options.timeout_ns = *ns;
    return {};
}

Result<void> set_engine(CommandLine &line, std::string_view value) {
    if (value.empty() || value.size() > wire::kMaxEngineIdBytes)
        return Error{0, "--engine: " + std::to_string(value.size()) + " bytes, must be 1 to " +
                            std::to_string(wire::kMaxEngineIdBytes)};
    line.options.engine = value;
    line.options.engine_given = true;
    return {};
}

Result<void> set_uid(CommandLine &line, std::string_view value) {
    return set_number(value, "--uid", UINT32_MAX - 1, &line.options.uid);
}

Result<void> set_count(CommandLine &line, std::string_view value) {
    if (auto set = set_number(value, "--count", 1'000'000, &line.options.count); !set)
        return set;
    if (line.options.count == 0)
        return Error{0, "--count: must be at least 1"};
    return {};
}

Result<void> set_namespace(CommandLine &line, std::string_view value) {
    if (value.empty())
        return Error{0, "--namespace: empty, expected a namespace's id or full text"};
    line.options.namespace_name = value;
    return {};
}

Result<void> set_segment(CommandLine &line, std::string_view value) {
    const size_t colon = value.rfind(':');
    const auto pool = parse_id(value.substr(0, colon));
    if (colon == value.npos || !pool || *pool == 0)
        return Error{0, "--segment: '" + std::string(value) +
                            "', expected POOL:N as 'maructl pool' prints them"};
    line.options.segment_pool = *pool;
    return set_number(value.substr(colon + 1), "--segment", UINT32_MAX - 1, &line.options.segment);
}

Result<void> set_help(CommandLine &line, std::string_view) {
    line.kind = CommandLine::Kind::Help;
    return {};
}

Result<void> set_version(CommandLine &line, std::string_view) {
    line.kind = CommandLine::Kind::Version;
    return {};
}

constexpr Option kOptions[] = {
    {"--json", "", 0, "Print JSON for programs", set_json},
    {"--bytes", "", 0, "Print exact numbers for people, too: bytes and milliseconds", set_bytes},
    {"--socket", "PATH", 0, "Where marud listens; else $MARU_SOCKET, then the usual places",
     set_socket},
    {"--timeout", "TIME", 0, "How long to wait for each answer (5s)", set_timeout},
    {"--engine", "ID", kEngine, "The engine that is asked about", set_engine},
    {"--uid", "N", kUid, "Whose engine or namespace it is", set_uid},
    {"--count", "N", kCount, "How many round trips to measure (2000)", set_count},
    {"--namespace", "NAMESPACE", kNamespace, "Everything in this namespace", set_namespace},
    {"--segment", "POOL:N", kSegment, "Everything in one segment of a shared pool", set_segment},
    {"--help", "", 0, "Print this, or what one command takes", set_help},
    {"--version", "", 0, "Print the version of maructl", set_version},
};

}  // namespace

std::span<const Option> options() { return kOptions; }

}  // namespace maru::maructl
