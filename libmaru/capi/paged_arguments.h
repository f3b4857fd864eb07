// What every gather and scatter checks before it moves a byte, on whichever processor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "libmaru/copy/paged.h"
#include "maru/paged.h"

namespace maru::capi {

// 0 and everything filled in but the objects, or the errno.
int read_blocks(const maru_paged_memory *from, const uint32_t *blocks, size_t blocks_per_object,
                size_t count, bool may_be_left_out, copy::PagedMemory &memory,
                copy::Transfer &transfer);
// The same with the objects' addresses.
int read_paged(const maru_paged_memory *from, const uint32_t *blocks, size_t blocks_per_object,
               const void *const *objects, size_t count, bool may_be_left_out,
               copy::PagedMemory &memory, copy::Transfer &transfer);

}  // namespace maru::capi
