// maru-bench: floors of this machine, and marud beside them in the same run.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <memory>
#include <string>

#include "tests/bench/floors.h"
#include "tests/bench/report.h"
#ifdef MARU_BENCH_CLIENT
#include "tests/bench/maru_cases.h"
#include "tests/bench/marud_process.h"
#endif

namespace {

constexpr char kHelp[] =
    "Usage: bench [--marud PROGRAM] [--json FILE] [--rounds N] [--quick]\n"
    "  --marud PROGRAM  start this marud for the run; without it only the floors are measured\n"
    "  --json FILE      write the figures there as well\n"
    "  --rounds N       1 to 1000; default 5; figures are medians over the rounds\n"
    "  --quick          small and short, to see that it runs\n";

[[noreturn]] void usage(const std::string &what) {
    std::fprintf(stderr, "bench: %s; see --help\n", what.c_str());
    std::exit(2);
}

int run(int argc, char **argv) {
    std::string marud, json;
    int rounds = 5;
    bool quick = false;
    for (int i = 1; i < argc; ++i) {
        const std::string option = argv[i];
        auto value = [&]() -> std::string {
            if (i + 1 == argc)
                usage(option + " needs a value");
            return argv[++i];
        };
        if (option == "--marud") {
            marud = value();
        } else if (option == "--json") {
            json = value();
        } else if (option == "--rounds") {
            const std::string text = value();
            rounds = std::atoi(text.c_str());
            if (rounds < 1 || rounds > 1000)
                usage("--rounds '" + text + "': 1 to 1000 are allowed");
        } else if (option == "--quick") {
            quick = true;
        } else if (option == "--help") {
            std::fputs(kHelp, stdout);
            return 0;
        } else {
            usage("unknown option '" + option + "'");
        }
    }

#ifdef MARU_BENCH_CLIENT
    std::unique_ptr<maru::bench::MarudProcess> process;  // outlives the cases that ask it
#endif
    maru::bench::Suite suite;
    maru::bench::add_floors(suite, quick);
#ifdef MARU_BENCH_CLIENT
    if (!marud.empty()) {
        process = std::make_unique<maru::bench::MarudProcess>(marud);
        maru::bench::add_maru_cases(suite, process->socket_path(), quick);
    }
#else
    if (!marud.empty())
        usage("--marud: this build has no client library");
#endif
    const bool all = suite.run(rounds);
    std::fputs(suite.table().c_str(), stdout);
    if (!json.empty()) {
        std::ofstream out(json);
        out << suite.json();
        out.flush();
        if (!out) {
            std::fprintf(stderr, "bench: cannot write '%s'\n", json.c_str());
            return 1;
        }
    }
    return all ? 0 : 1;
}

}  // namespace

// A refusal leaves through here, so that the marud of the run is ended whatever happens.
int main(int argc, char **argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "bench: %s\n", error.what());
        return 1;
    }
}
