// libFuzzer target: any text as a request trace. A trace that is read is written and read again as
// the same.
#include <cstdlib>
#include <sstream>
#include <string>

#include "tests/replay/trace.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    using namespace maru::replay;
    std::istringstream in(std::string(reinterpret_cast<const char *>(data), size));
    const auto trace = read_trace(in, "fuzz");
    if (!trace) {
        if (trace.error().message.empty())
            std::abort();
        return 0;
    }
    ideal_hits(*trace);
    std::ostringstream out;
    write_trace(out, *trace);
    std::istringstream back(out.str());
    const auto again = read_trace(back, "written");
    if (!again || again->size() != trace->size())
        std::abort();
    for (size_t i = 0; i < trace->size(); ++i)
        if ((*again)[i].timestamp_ms != (*trace)[i].timestamp_ms ||
            (*again)[i].input_tokens != (*trace)[i].input_tokens ||
            (*again)[i].blocks != (*trace)[i].blocks)
            std::abort();
    return 0;
}
