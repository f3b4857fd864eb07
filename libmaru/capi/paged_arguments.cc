#include "libmaru/capi/paged_arguments.h"

#include <cerrno>

#include "libmaru/capi/guard.h"
#include "libmaru/capi/handles.h"

namespace maru::capi {
namespace {

constexpr uint32_t kMaxThreads = 64;

static_assert(MARU_NO_BLOCK == copy::kNoBlock && MARU_CHECKSUM_BYTES == copy::kChecksumBytes);

int number_error(const char *field, uint64_t is, const std::string &must) {
    return fail(EINVAL, "memory->" + std::string(field) + ": is " + std::to_string(is) +
                            ", must be " + must);
}

// A wrong id would be a copy over memory that is not the engine's KV: every one is looked at.
int check_blocks(const maru_paged_memory &memory, const uint32_t *blocks, size_t count,
                 bool may_be_left_out) {
    for (size_t i = 0; i < count; ++i) {
        if (blocks[i] < memory.block_count || (may_be_left_out && blocks[i] == MARU_NO_BLOCK))
            continue;
        return fail(EINVAL, "blocks[" + std::to_string(i) + "]: is " + std::to_string(blocks[i]) +
                                ", must be below memory->block_count, " +
                                std::to_string(memory.block_count));
    }
    return 0;
}

}  // namespace

int read_blocks(const maru_paged_memory *from, const uint32_t *blocks, size_t blocks_per_object,
                size_t count, bool may_be_left_out, copy::PagedMemory &memory,
                copy::Transfer &transfer) {
    maru_paged_memory in{};
    if (int bad = read_options(from, "memory", offsetof(maru_paged_memory, block_stride), in))
        return bad;
    if (!in.layers || in.layer_count == 0)
        return fail(EINVAL, "memory->layers: must have at least one layer");
    for (size_t i = 0; i < in.layer_count; ++i)
        if (!in.layers[i])
            return fail(EINVAL, "memory->layers[" + std::to_string(i) + "]: must not be NULL");
    if (in.block_bytes == 0)
        return number_error("block_bytes", 0, "at least 1");
    if (in.block_count == 0 || in.block_count >= MARU_NO_BLOCK)
        return number_error("block_count", in.block_count, "from 1 to 4294967294");
    if (in.block_stride == 0)
        in.block_stride = in.block_bytes;
    if (in.block_stride < in.block_bytes)
        return number_error("block_stride", in.block_stride,
                            "at least block_bytes, " + std::to_string(in.block_bytes));
    if (in.threads > kMaxThreads)
        return number_error("threads", in.threads, "at most " + std::to_string(kMaxThreads));
    if (in.flags & ~MARU_CHECKSUM)
        return number_error("flags", in.flags, "0 or MARU_CHECKSUM");
    uint64_t bytes = 0, checksums = 0;
    if (__builtin_mul_overflow(in.block_stride, in.block_count, &bytes) ||
        __builtin_mul_overflow(in.block_bytes, in.layer_count, &bytes) ||
        __builtin_mul_overflow(bytes, blocks_per_object, &bytes) ||
        __builtin_mul_overflow(bytes, count, &bytes) ||
        __builtin_mul_overflow(count, copy::kChecksumBytes, &checksums) ||
        __builtin_add_overflow(bytes, checksums, &bytes) ||
        __builtin_mul_overflow(count, blocks_per_object, &bytes))
        return fail(EINVAL, "memory: its sizes do not fit in 64 bits");
    if (count > 0 && blocks_per_object == 0)
        return fail(EINVAL, "blocks_per_object: must be at least 1");
    if (int bad = check_array(blocks, count, "blocks"))
        return bad;
    if (int bad = check_blocks(in, blocks, count * blocks_per_object, may_be_left_out))
        return bad;
    memory = {{in.layers, in.layer_count}, in.block_bytes, in.block_stride};
    transfer = {blocks,    blocks_per_object, nullptr, count, (in.flags & MARU_CHECKSUM) != 0,
                in.threads};
    return 0;
}

int read_paged(const maru_paged_memory *from, const uint32_t *blocks, size_t blocks_per_object,
               const void *const *objects, size_t count, bool may_be_left_out,
               copy::PagedMemory &memory, copy::Transfer &transfer) {
    if (int bad =
            read_blocks(from, blocks, blocks_per_object, count, may_be_left_out, memory, transfer))
        return bad;
    if (int bad = check_array(objects, count, "objects"))
        return bad;
    for (size_t i = 0; i < count; ++i)
        if (!objects[i])
            return fail(EINVAL, "objects[" + std::to_string(i) + "]: must not be NULL");
    transfer.objects = const_cast<void *const *>(objects);
    return 0;
}

}  // namespace maru::capi
