// maru-bench: floors of this machine, and marud beside them in the same run.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>

#include "tests/bench/cases/cases.h"
#include "tests/bench/other_process.h"
#include "tests/bench/pin.h"
#include "tests/bench/report.h"

namespace {

constexpr char kHelp[] =
    "Usage: bench [--marud PROGRAM] [--json FILE] [--rounds N] [--only TEXT] [--readme] [--quick]\n"
    "  --marud PROGRAM   start this marud for the run; without it only the copies are measured\n"
    "  --python FOLDER   where python_cases.py is; without it nothing is measured from Python\n"
    "  --json FILE       write the figures there as well\n"
    "  --rounds N        1 to 1000; default 5; figures are medians over the rounds, a first one "
    "dropped\n"
    "  --only TEXT       only groups of cases whose name has TEXT in it\n"
    "  --groups          print their names\n"
    "  --readme          print the table as Markdown\n"
    "  --quick           small and short, to see that it runs\n";

[[noreturn]] void usage(const std::string &what) {
    std::fprintf(stderr, "bench: %s; see --help\n", what.c_str());
    std::exit(2);
}

struct Options {
    maru::bench::Plan plan;
    std::string json, only;
    int rounds = 5;
    bool readme = false, groups = false;
};

Options parse(int argc, char **argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string option = argv[i];
        auto value = [&]() -> std::string {
            if (i + 1 == argc)
                usage(option + " needs a value");
            return argv[++i];
        };
        if (option == "--marud") {
            options.plan.marud = value();
        } else if (option == "--python") {
            options.plan.python = value();
        } else if (option == "--json") {
            options.json = value();
        } else if (option == "--only") {
            options.only = value();
        } else if (option == "--rounds") {
            const std::string text = value();
            options.rounds = std::atoi(text.c_str());
            if (options.rounds < 1 || options.rounds > 1000)
                usage("--rounds '" + text + "': 1 to 1000 are allowed");
        } else if (option == "--readme") {
            options.readme = true;
        } else if (option == "--groups") {
            options.groups = true;
        } else if (option == "--quick") {
            options.plan.quick = true;
        } else if (option == "--help") {
            std::fputs(kHelp, stdout);
            std::exit(0);
        } else {
            usage("unknown option '" + option + "'");
        }
    }
    return options;
}

void add_groups(maru::bench::Suite &suite, const maru::bench::Plan &plan) {
    using namespace maru::bench;
    add_copies(suite, plan);
    if (plan.marud.empty())
        return;
    add_control(suite, plan);
    add_data(suite, plan);
    add_one_object(suite, plan);
    add_two_clients(suite, plan);
    add_paged(suite, plan);
    if (!plan.python.empty())
        add_python(suite, plan);
    add_pool_open(suite, plan);
    add_kill(suite, plan);
    add_growth(suite, plan);
    add_republish(suite, plan);
    add_idle(suite, plan);
}

int run(int argc, char **argv) {
    if (const int status = maru::bench::run_as_other_process(argc, argv); status >= 0)
        return status;
    Options options = parse(argc, argv);
    char self[4096] = {};
    if (::readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        std::perror("bench: /proc/self/exe");
    options.plan.bench = self;

    maru::bench::Suite suite;
    add_groups(suite, options.plan);
    if (options.groups) {
        for (const std::string &name : suite.names())
            std::printf("%s\n", name.c_str());
        return 0;
    }
    suite.only(options.only);
    const std::string notes = maru::bench::pinning_text() + "\n";
    const bool all = suite.run(options.rounds, !options.plan.quick);
    if (options.readme)
        std::fputs(maru::bench::readme(suite).c_str(), stdout);
    std::fputs(maru::bench::table(suite, notes).c_str(), stdout);
    if (!options.json.empty()) {
        std::ofstream out(options.json);
        out << maru::bench::json(suite, notes);
        out.flush();
        if (!out) {
            std::fprintf(stderr, "bench: cannot write '%s'\n", options.json.c_str());
            return 1;
        }
    }
    return all ? 0 : 1;
}

}  // namespace

// A refusal leaves through here, so that the processes of the run are ended whatever happens.
int main(int argc, char **argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "bench: %s\n", error.what());
        return 1;
    }
}
