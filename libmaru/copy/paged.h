// Gather and scatter: whole blocks of an engine's paged KV memory, to and from objects in a pool.
//
// An object is [layer][block][block_bytes], whatever order the engine keeps them in; blocks are opaque
// bytes. Block ids that follow each other are copied as one run. Several threads share the work when
// there is enough of it and the machine has processors to spare. They live for one call only: nothing
// is left for a forked child to trip over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace maru::copy {

inline constexpr uint32_t kNoBlock = UINT32_MAX;
inline constexpr size_t kChecksumBytes = 16;

struct PagedMemory {
    std::span<void *const> layers;  // address of block 0 of each
    uint64_t block_bytes;
    uint64_t block_stride;

    uint64_t object_bytes(size_t blocks) const { return layers.size() * blocks * block_bytes; }
};

struct Transfer {
    const uint32_t *blocks;  // blocks_per_object ids for each object; kNoBlock is left out
    size_t blocks_per_object;
    void *const *objects;
    size_t count;
    bool checksum;   // XXH3-128, canonical form, behind the blocks
    size_t threads;  // 0: as many as are worth it
};

// Into a pool, fenced. No kNoBlock here: an object is written whole.
void gather(const PagedMemory &memory, const Transfer &transfer);
// Out of a pool. With checksum an object is checked before any block of it is written; results[i] is 0
// or -EBADMSG. `results` may be null. Returns whether all were good.
bool scatter(const PagedMemory &memory, const Transfer &transfer, int *results);

// What `threads` = 0 means for this many bytes. MARU_COPY_THREADS is the upper limit, 1 to 64.
size_t worthwhile_threads(uint64_t bytes);

void checksum(const void *bytes, size_t size, uint8_t out[kChecksumBytes]);

}  // namespace maru::copy
