// The commands of maructl: one row each. Help, parsing and dispatch all read these tables.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/maructl/client.h"

namespace maru::maructl {

enum Exit : int { kOk = 0, kFailed = 1, kUsage = 2, kCannotConnect = 3 };

struct Options {
    bool json = false;
    bool exact = false;  // bytes and milliseconds also in tables
    std::string socket;  // empty: the usual places
    int64_t timeout_ns = 5'000'000'000;
    std::string engine;
    bool engine_given = false;
    uint32_t uid = UINT32_MAX;  // UINT32_MAX: the caller's
    uint32_t count = 2000;
    std::string namespace_name;  // with --namespace; else empty
    wire::Id segment_pool = 0;   // with --segment; else 0
    uint32_t segment = 0;
    std::vector<std::string> arguments;
};

// What a verb works with. connect() reports its own failure, and says what to exit with.
struct Context {
    const Options &options;
    std::ostream &out;
    std::ostream &err;
    const std::function<Result<UniqueFd>(const Options &, int64_t deadline_ns)> &open_socket;

    std::optional<Client> connect(int *ret_exit);
    int fail(int exit, std::string_view message) const;  // "maructl: message"
    int fail(const Error &error) const;                  // kFailed
};

enum OptionBit : unsigned { kEngine = 1, kUid = 2, kCount = 4, kSegment = 8, kNamespace = 16 };

struct Verb {
    std::string_view name;
    std::string_view arguments;
    size_t min_arguments, max_arguments;
    unsigned options;  // OptionBits, beyond those that every verb takes
    std::string_view summary;
    int (*run)(Context &);
};

std::span<const Verb> verbs();

int verb_status(Context &);
int verb_pool(Context &);
int verb_session(Context &);
int verb_namespace(Context &);
int verb_object(Context &);
int verb_lease(Context &);
int verb_usage(Context &);
int verb_explain(Context &);
int verb_retire(Context &);
int verb_drain(Context &);
int verb_reload(Context &);
int verb_bench(Context &);
int verb_doctor(Context &);
int verb_completion(Context &);
int verb_metrics(Context &);
int verb_version(Context &);

}  // namespace maru::maructl
