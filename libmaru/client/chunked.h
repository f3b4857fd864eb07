// Chunked: records by number that never move and never go, a power of two of them per allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace maru::client {

template <typename T, uint32_t kPerChunk>
class Chunked {
    static_assert((kPerChunk & (kPerChunk - 1)) == 0);

  public:
    T &operator[](uint32_t index) { return chunks_[index / kPerChunk][index % kPerChunk]; }
    const T &operator[](uint32_t index) const {
        return chunks_[index / kPerChunk][index % kPerChunk];
    }
    uint32_t size() const { return static_cast<uint32_t>(chunks_.size()) * kPerChunk; }
    // One chunk more, of new records. Throws bad_alloc.
    void grow() { chunks_.push_back(std::make_unique<T[]>(kPerChunk)); }

  private:
    std::vector<std::unique_ptr<T[]>> chunks_;
};

}  // namespace maru::client
