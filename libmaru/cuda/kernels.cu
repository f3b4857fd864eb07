// The copy kernels: maru_cuda_gather (engine to objects) and maru_cuda_scatter (objects to engine).
//
// A kernel reads and writes exactly the blocks of its batch. Loads go before stores, four at a time: what
// is on the other side of the link takes microseconds to answer.
#include "libmaru/cuda/batch.h"

using maru::cuda::Batch;

namespace {

template <typename Unit>
__device__ void copy(char *to, const char *from, uint64_t bytes) {
    auto *out = reinterpret_cast<Unit *>(to);
    const auto *in = reinterpret_cast<const Unit *>(from);
    const uint64_t count = bytes / sizeof(Unit), step = blockDim.x;
    uint64_t i = threadIdx.x;
    for (; i + 3 * step < count; i += 4 * step) {
        const Unit a = in[i], b = in[i + step], c = in[i + 2 * step], d = in[i + 3 * step];
        out[i] = a;
        out[i + step] = b;
        out[i + 2 * step] = c;
        out[i + 3 * step] = d;
    }
    for (; i < count; i += step)
        out[i] = in[i];
}

template <bool kGather>
__device__ void run(const Batch &batch) {
    const uint64_t pieces = (batch.block_bytes + Batch::kPieceBytes - 1) / Batch::kPieceBytes;
    const uint64_t work = pieces * batch.row_count * batch.layer_count;
    // Neighbours of one object are copied at the same time: they are neighbours in the host's memory.
    for (uint64_t item = blockIdx.x; item < work; item += gridDim.x) {
        const uint64_t at = item % pieces * Batch::kPieceBytes;
        const uint32_t row = static_cast<uint32_t>(item / pieces % batch.row_count);
        const uint32_t layer = static_cast<uint32_t>(item / pieces / batch.row_count);
        const uint64_t left = batch.block_bytes - at;
        const uint64_t bytes = left < Batch::kPieceBytes ? left : Batch::kPieceBytes;
        auto *engine = reinterpret_cast<char *>(batch.layers[layer] +
                                                batch.blocks[row] * batch.block_stride + at);
        auto *object = reinterpret_cast<char *>(batch.rows[row] + layer * batch.layer_bytes + at);
        char *to = kGather ? object : engine;
        const char *from = kGather ? engine : object;
        switch (batch.width) {
            case 16:
                copy<uint4>(to, from, bytes);
                break;
            case 8:
                copy<uint2>(to, from, bytes);
                break;
            case 4:
                copy<unsigned>(to, from, bytes);
                break;
            case 2:
                copy<unsigned short>(to, from, bytes);
                break;
            default:
                copy<unsigned char>(to, from, bytes);
        }
    }
}

}  // namespace

extern "C" {

__global__ void __launch_bounds__(maru::cuda::kThreadsPerBlock)
    maru_cuda_gather(const __grid_constant__ Batch batch) {
    run<true>(batch);
}

__global__ void __launch_bounds__(maru::cuda::kThreadsPerBlock)
    maru_cuda_scatter(const __grid_constant__ Batch batch) {
    run<false>(batch);
}

}  // extern "C"
