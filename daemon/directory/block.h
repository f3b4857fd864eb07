// Blocks of memory for the directory's tables: 2 MiB, aligned, so that the kernel may back each by
// one huge page. A table of millions of records is read at random: with 4 KiB pages nearly every
// record would cost a TLB miss on top of its cache miss.
//
// The kernel clears a huge page when it is touched first, for milliseconds on a machine whose own
// memory must be found for it. So that no request waits for that, a table says early that it will
// need a block, and a thread makes it. Without the thread each is made when it is taken.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace maru::directory {

inline constexpr size_t kBlockBytes = 2 << 20;

// The place in its last block at which a table announces the next one: late, so that little memory is
// made and not used; early enough for a thread at two million new records a second.
constexpr uint32_t announced_at(uint32_t per_block) { return per_block / 8 * 5; }

struct BlockDeleter {
    void operator()(std::byte *block) const { std::free(block); }
};
using Block = std::unique_ptr<std::byte, BlockDeleter>;

class Blocks {
  public:
    Blocks() = default;
    ~Blocks();
    Blocks(const Blocks &) = delete;
    Blocks &operator=(const Blocks &) = delete;

    // From now a thread makes what is announced. False: there is no thread, and nothing changes.
    bool start_thread();

    // One that take() will be called for before long.
    void announce();
    // Throws bad_alloc. `huge` is asked for from the second block of a table on: a small directory
    // touches little of its first, and a huge page there would be 2 MiB of zeroing for a few records.
    Block take(bool huge);

    size_t memory_bytes() const;  // of those that are made and not taken

  private:
    static Block make(bool huge);
    void run();

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Block> ready_;
    size_t announced_ = 0;  // and not taken; so many should be ready
    bool stop_ = false;
    std::thread thread_;
};

}  // namespace maru::directory
