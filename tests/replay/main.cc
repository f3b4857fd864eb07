// maru-replay: the main job of Maru on real input, see options_help().
#include <cstdio>

#include "tests/replay/coordinator.h"
#include "tests/replay/worker.h"

using namespace maru;
using namespace maru::replay;

namespace {

int complain(const Error &error, int status) {
    std::fprintf(stderr, "maru-replay: %s\n", describe(error).c_str());
    return status;
}

bool write_file(const std::string &path, const std::string &text) {
    if (path == "-")
        return std::fputs(text.c_str(), stdout) >= 0;
    std::FILE *file = std::fopen(path.c_str(), "w");
    if (!file)
        return false;
    bool written = std::fputs(text.c_str(), file) >= 0;
    return std::fclose(file) == 0 && written;
}

}  // namespace

int main(int argc, char **argv) {
    auto options = parse_options(argc, argv);
    if (!options)
        return complain(Error{0, options.error().message}, 2);
    if (options->help)
        return std::fputs(options_help(), stdout) >= 0 ? 0 : 1;
    if (!options->worker_fd.empty())
        return run_worker(*options);

    std::vector<TraceRequest> trace;
    if (options->trace.empty()) {
        trace = generate_trace(options->requests ? options->requests : 600, options->seed);
    } else {
        auto read = read_trace_file(options->trace);
        if (!read)
            return complain(read.error(), 2);
        trace = std::move(*read);
        if (options->requests && options->requests < trace.size())
            trace.resize(options->requests);
    }
    std::FILE *text = options->json == "-" ? stderr : stdout;
    std::fprintf(text, "trace      %s, %zu requests\n",
                 options->trace.empty() ? "generated" : options->trace.c_str(), trace.size());
    std::fflush(text);

    auto report = replay_trace(*options, trace);
    if (!report)
        return complain(report.error(), 1);
    std::fputs(report_text(*report, *options).c_str(), text);
    if (!options->json.empty() && !write_file(options->json, report_json(*report, *options)))
        return complain(Error{errno, "write '" + options->json + "'"}, 1);
    // Without kills nothing may fail; with them calls may time out, but never read wrong bytes.
    bool good = report->mismatches == 0 && report->requests == trace.size() &&
                (options->kill || report->errors == 0);
    return good ? 0 : 1;
}
