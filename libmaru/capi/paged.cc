#include "maru/paged.h"

#include <cerrno>

#include "libmaru/capi/guard.h"
#include "libmaru/capi/paged_arguments.h"

using namespace maru;
using namespace maru::capi;

extern "C" {

int maru_gather(const struct maru_paged_memory *memory, const uint32_t *blocks,
                size_t blocks_per_object, void *const *objects, size_t count) {
    return abi_guard([&]() -> int {
        copy::PagedMemory paged;
        copy::Transfer transfer;
        if (int bad = read_paged(memory, blocks, blocks_per_object, objects, count, false, paged,
                                 transfer))
            return bad;
        copy::gather(paged, transfer);
        return 0;
    });
}

int maru_scatter(const struct maru_paged_memory *memory, const uint32_t *blocks,
                 size_t blocks_per_object, const void *const *objects, size_t count,
                 int *ret_results) {
    return abi_guard([&]() -> int {
        copy::PagedMemory paged;
        copy::Transfer transfer;
        if (int bad = read_paged(memory, blocks, blocks_per_object, objects, count, true, paged,
                                 transfer))
            return bad;
        if (!copy::scatter(paged, transfer, ret_results))
            return fail(EBADMSG, "objects: the checksum of at least one is wrong");
        return 0;
    });
}

}  // extern "C"
