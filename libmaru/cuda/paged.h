// Gather and scatter with the engine's blocks in a GPU's memory and the objects in a pool.
//
// An object is laid out as in libmaru/copy/paged.h. Everything is in order on the caller's stream. A
// kernel moves the objects whose memory is registered (PinnedRanges); others go through the driver's
// copies, which take any memory and may wait for it. Until the stream has passed, the objects' memory
// must stay as it is; that is the caller's to see to.
#pragma once

#include "libmaru/base/result.h"
#include "libmaru/copy/paged.h"
#include "libmaru/cuda/device.h"

namespace maru::cuda {

// memory.layers: device addresses. After an error, what was moved is not known.
// With transfer.checksum it waits for the stream, and then writes the checksums.
Result<void> gather(const Device &device, const copy::PagedMemory &memory,
                    const copy::Transfer &transfer, CUstream stream);
// With transfer.checksum the objects are checked first, by the CPU; results[i] is 0 or -EBADMSG, and EBADMSG
// is returned after the good ones are on their way. `results` may be null.
Result<void> scatter(const Device &device, const copy::PagedMemory &memory,
                     const copy::Transfer &transfer, int *results, CUstream stream);
// Until everything that was given to the stream has ended.
Result<void> wait(const Device &device, CUstream stream);

}  // namespace maru::cuda
