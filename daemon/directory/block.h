// Blocks of memory for the directory's tables: 2 MiB, aligned, so that the kernel may back each by
// one huge page. A table of millions of records is read at random: with 4 KiB pages nearly every
// record would cost a TLB miss on top of its cache miss.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace maru::directory {

inline constexpr size_t kBlockBytes = 2 << 20;

struct BlockDeleter {
    void operator()(std::byte *block) const { std::free(block); }
};
using Block = std::unique_ptr<std::byte, BlockDeleter>;

// `huge` is asked for from the second block of a table on: a small directory touches little of
// its first, and a huge page there would be 2 MiB of zeroing for a few records.
inline Block allocate_block(bool huge) {
    Block block(static_cast<std::byte *>(std::aligned_alloc(kBlockBytes, kBlockBytes)));
    if (!block)
        throw std::bad_alloc();
    if (huge)
        (void)::madvise(block.get(), kBlockBytes, MADV_HUGEPAGE);  // a wish: refused is fine
    return block;
}

}  // namespace maru::directory
