// maru-sim: the deterministic simulation of everything that marud decides.
//
// How to read this directory:
//   rules.h      the promises that are checked, one sentence each; 1-7 are the RFC's invariants
//   world.h      the machine: clock, processes, memory files with their mappings and pins, sockets.
//                world.cc is kernel and choice of the next step, shell.cc plays marud's shell
//                (Effects) with its deaths and restarts, episode.cc has the cast and the end
//   truth.h      what must be so, from requests, replies and pages alone; truth.cc memory and
//                the checks after every step; truth_sessions.cc, truth_commits.cc, truth_reads.cc
//                every reply
//   clients.h    correct workers (worker*.cc), schedulers and maructl (others.cc), liars (liar.cc)
//   settings.h   what one episode looks like: each draws its own faults, limits and sizes
//   mutants.list bugs planted into the core in this directory's build only, each to be found
//
// A run is a series of episodes of some thousand steps; a step is one event: a message is delivered,
// a job of the kernel ends, a client does one thing, something fails. Every choice comes from one
// seed, so the line that a failure prints replays it exactly.
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "daemon/directory/mutant.h"
#include "tests/sim/mutants.h"
#include "tests/sim/truth.h"
#include "tests/sim/world.h"

namespace maru::sim {
namespace {

struct Options {
    uint64_t steps = 100'000;
    uint64_t seed = 1;
    uint64_t episode = 0;
    uint32_t workers = 0;  // 0: drawn per episode
    std::string mutant;
    bool twice = false;
    bool trace = false;
};

struct Progress {  // for the report of an abort as well
    Options options;
    uint64_t episode = 0;
    uint64_t steps_before = 0;
    Trace *trace = nullptr;
    World *world = nullptr;
} progress;

uint64_t steps_done() {
    return progress.steps_before + (progress.world ? progress.world->steps() : 0);
}

int report(const char *rule, const char *sentence, const char *what) {
    const Options &options = progress.options;
    if (!options.mutant.empty() && !options.trace) {
        printf("mutant %s found after %llu steps by %s: %s\n", options.mutant.c_str(),
               static_cast<unsigned long long>(steps_done()), rule, what);
        return 0;
    }
    fprintf(stderr, "last %zu lines of the trace:\n", progress.trace->last().size());
    for (const std::string &line : progress.trace->last())
        fprintf(stderr, "%s\n", line.c_str());
    fprintf(stderr,
            "\nFAILED seed %llu episode %llu step %llu (%llu in all)\n  rule   %s\n         %s\n  "
            "what   %s\n",
            static_cast<unsigned long long>(options.seed),
            static_cast<unsigned long long>(progress.episode),
            static_cast<unsigned long long>(progress.world ? progress.world->steps() : 0),
            static_cast<unsigned long long>(steps_done()), rule, sentence, what);
    fprintf(stderr, "  replay maru-sim --seed %llu --episode %llu --steps 1",
            static_cast<unsigned long long>(options.seed),
            static_cast<unsigned long long>(progress.episode));
    if (options.workers)
        fprintf(stderr, " --workers %u", options.workers);
    if (!options.mutant.empty())
        fprintf(stderr, " --mutant %s", options.mutant.c_str());
    fprintf(stderr, "  (--trace prints every line)\n");
    return options.mutant.empty() ? 1 : 0;
}

// An assertion of the core is a finding too, and must say how to get there again.
void on_abort(int signal) {
    const int code = report("assertion", "The core's own assertions hold.",
                            signal == SIGABRT ? "abort() was called" : "a memory fault");
    fflush(nullptr);
    _exit(code);
}

// Runs episodes until `steps` are done; the hash of all traces. Throws Violation.
uint64_t run(const Options &options, Truth::Statistics &statistics) {
    uint64_t hash = 0;
    progress.steps_before = 0;
    for (uint64_t episode = options.episode; progress.steps_before < options.steps; ++episode) {
        progress.episode = episode;
        Random draw(mix(options.seed, episode));
        Settings settings = Settings::draw(draw);
        if (options.workers)
            settings.workers = options.workers;
        Trace trace;
        trace.echo(options.trace);
        progress.trace = &trace;
        World world(draw.next(), settings, trace);
        progress.world = &world;
        try {
            world.run();
        } catch (const Violation &violation) {
            const RuleText &text = rule_text(violation.rule);
            const int code = report(text.name, text.sentence, violation.what.c_str());
            fflush(nullptr);
            _exit(code);
        }
        statistics.add(world.truth().statistics());
        progress.steps_before += world.steps();
        progress.world = nullptr;
        hash = mix(hash, trace.hash());
    }
    return hash;
}

int usage(const char *problem) {
    fprintf(
        stderr,
        "maru-sim: %s\n"
        "usage: maru-sim [--steps N] [--seed S] [--episode E] [--workers N] [--twice] [--trace]\n"
        "                [--mutant NAME | --list-mutants]\n",
        problem);
    return 2;
}

int main_of(int argc, char **argv) {
    Options &options = progress.options;
    for (int i = 1; i < argc; ++i) {
        const std::string name = argv[i];
        if (name == "--twice") {
            options.twice = true;
            continue;
        }
        if (name == "--trace") {
            options.trace = true;
            continue;
        }
        if (name == "--list-mutants") {
            for (const Mutant &mutant : kMutants)
                printf("%-28s %s\n", mutant.name, mutant.breaks);
            return 0;
        }
        if (i + 1 >= argc)
            return usage(("'" + name + "' is unknown or lacks its value").c_str());
        const char *value = argv[++i];
        if (name == "--mutant") {
            options.mutant = value;
            continue;
        }
        char *end = nullptr;
        const uint64_t number = strtoull(value, &end, 10);
        if (!*value || *end)
            return usage((name + " takes a number, not '" + value + "'").c_str());
        if (name == "--steps")
            options.steps = number;
        else if (name == "--seed")
            options.seed = number;
        else if (name == "--episode")
            options.episode = number;
        else if (name == "--workers")
            options.workers = static_cast<uint32_t>(number);
        else
            return usage(("'" + name + "' is unknown").c_str());
    }
    if (!options.mutant.empty()) {
        bool known = false;
        for (const Mutant &mutant : kMutants)
            known |= options.mutant == mutant.name;
        if (!known)
            return usage(("no mutant '" + options.mutant + "'; --list-mutants shows them").c_str());
#ifdef MARU_MUTANTS
        chosen_mutant = mutant_code(options.mutant.c_str());
#else
        return usage("this build has no mutants; maru-sim-mutants has");
#endif
    }
    signal(SIGABRT, on_abort);
    signal(SIGSEGV, on_abort);

    Truth::Statistics statistics;
    const uint64_t hash = run(options, statistics);
    if (!options.mutant.empty()) {
        uint64_t reached = 0;
#ifdef MARU_MUTANTS
        reached = mutant_reached;
#endif
        fprintf(stderr, "mutant %s NOT found in %llu steps; its point was reached %llu times\n",
                options.mutant.c_str(), static_cast<unsigned long long>(progress.steps_before),
                static_cast<unsigned long long>(reached));
        return 1;
    }
    if (options.twice) {
        Truth::Statistics again;
        const uint64_t second = run(options, again);
        if (second != hash) {
            fprintf(stderr, "seed %llu gave trace %llx, and %llx the second time\n",
                    static_cast<unsigned long long>(options.seed),
                    static_cast<unsigned long long>(hash), static_cast<unsigned long long>(second));
            return 1;
        }
    }
    const auto print = [](const char *name, uint64_t count) {
        printf("  %-12s %llu\n", name, static_cast<unsigned long long>(count));
    };
    printf("seed %llu: %llu steps, no violation, trace %016llx\n",
           static_cast<unsigned long long>(options.seed),
           static_cast<unsigned long long>(progress.steps_before),
           static_cast<unsigned long long>(hash));
    print("lives", statistics.lives);
    print("opens", statistics.opens);
    print("attaches", statistics.attaches);
    print("fenced", statistics.fenced);
    print("exits", statistics.exits);
    print("requests", statistics.requests);
    print("refused", statistics.refused);
    print("stale", statistics.stale);
    print("pools", statistics.pools);
    print("closed", statistics.closed);
    print("commits", statistics.commits);
    print("present", statistics.present);
    print("resolved", statistics.resolved);
    print("republished", statistics.republished);
    print("probed keys", statistics.probes);
    print("probe hits", statistics.probe_hits);
    print("acquired", statistics.acquired);
    print("missed", statistics.missed);
    print("released", statistics.released);
    print("retired", statistics.retired);
    print("reclaimed", statistics.reclaimed);
    print("pages read", statistics.pages_read);
    print("shared: stored", statistics.shared.stored);
    print("  own hits", statistics.shared.own_hits);
    print("  others' hits", statistics.shared.foreign_hits);
    print("  adopted hits", statistics.shared.adopted_hits);
    print("  retired", statistics.shared.retired);
    print("  views", statistics.shared.views);
    print("  segments adopted", statistics.shared.adopted);
    print("  adopted copies over a restart", statistics.shared.kept_over_restart);
    return 0;
}

}  // namespace
}  // namespace maru::sim

int main(int argc, char **argv) { return maru::sim::main_of(argc, argv); }
