// The groups, one file each. They share what the run was asked for, and nothing else.
#pragma once

#include <string>

#include "tests/bench/floors/floors.h"
#include "tests/bench/suite.h"

namespace maru::bench {

struct Plan {
    std::string marud;   // the program; "": floors alone
    std::string bench;   // this program, for other processes
    std::string python;  // folder with python_cases.py; "": no Python
    bool quick = false;  // small and short, to see that it runs

    int turns(int full) const { return quick ? 3 : full; }
    size_t bytes(size_t full) const { return quick ? full / 16 : full; }
};

// NotMeasurable when so much memory is not free.
void need_memory(uint64_t bytes);

void add_copies(Suite &suite, const Plan &plan);      // floors too: raw kernels
void add_control(Suite &suite, const Plan &plan);     // probe, acquire + release, commit
void add_data(Suite &suite, const Plan &plan);        // store and load in batches
void add_one_object(Suite &suite, const Plan &plan);  // of another process
void add_two_clients(Suite &suite, const Plan &plan);
void add_paged(Suite &suite, const Plan &plan);   // gather and scatter
void add_python(Suite &suite, const Plan &plan);  // and digests
void add_growth(Suite &suite, const Plan &plan);  // population and sessions; memory
void add_republish(Suite &suite, const Plan &plan);
void add_kill(Suite &suite, const Plan &plan);
void add_idle(Suite &suite, const Plan &plan);
void add_pool_open(Suite &suite, const Plan &plan);

}  // namespace maru::bench
