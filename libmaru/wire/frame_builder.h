// FrameBuffer: one message built in one buffer, which the next message reuses.
//
// The frame is a segment table for exactly one segment, then that segment. Cap'n Proto needs the
// words it allocates to be zero; MallocMessageBuilder clears its whole scratch space for that, which
// costs more than a small message. Here only the words that messages since the last one that was built
// have used are cleared, and nothing is allocated. A message that needs no zeroes is written over
// what is there. What does not fit is an error, never a second segment.
#pragma once

#include <capnp/message.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>

#include "libmaru/base/result.h"
#include "libmaru/wire/limits.h"

namespace maru::wire {

class FrameBuffer {
  public:
    FrameBuffer();
    ~FrameBuffer();

    // Builds a message of root type T with fill(T::Builder). The frame is valid until the next build.
    template <typename T, typename Fill>
    Result<std::span<const std::byte>> build(Fill &&fill) {
        return build_message([&](capnp::MessageBuilder &message) { fill(message.initRoot<T>()); });
    }

    // For a frame that is written as it stands, table included, and then said to be there.
    std::span<std::byte> space() {
        return {reinterpret_cast<std::byte *>(words_.get()), kMaxFrameBytes};
    }
    std::span<const std::byte> written(size_t bytes) {
        if (bytes > 0)
            used_ = std::max(used_, bytes / sizeof(capnp::word) - kTableWords);
        return space().first(bytes);
    }

  private:
    template <typename Fill>
    Result<std::span<const std::byte>> build_message(Fill &&fill);

    class Builder;
    static constexpr size_t kTableWords = 1;
    static constexpr size_t kSegmentWords = kMaxFrameBytes / sizeof(capnp::word) - kTableWords;

    void clear();
    Result<std::span<const std::byte>> finish(capnp::MessageBuilder &message);
    static Error too_large();
    static Error failed(const kj::Exception &exception);

    std::unique_ptr<capnp::word[]> words_;  // table, then segment
    size_t used_ = 0;                       // words of the segment that may not be zero
};

class FrameBuffer::Builder final : public capnp::MessageBuilder {
  public:
    explicit Builder(kj::ArrayPtr<capnp::word> space) : space_(space) {}
    kj::ArrayPtr<capnp::word> allocateSegment(unsigned minimum_words) override;
    bool overflowed() const { return overflowed_; }

  private:
    kj::ArrayPtr<capnp::word> space_;
    bool given_ = false;
    bool overflowed_ = false;
};

template <typename Fill>
Result<std::span<const std::byte>> FrameBuffer::build_message(Fill &&fill) {
    clear();
    Builder builder(kj::arrayPtr(words_.get() + kTableWords, kSegmentWords));
    used_ = kSegmentWords;  // until finish() knows better
    try {
        fill(builder);
        return finish(builder);
    } catch (const kj::Exception &exception) {
        return builder.overflowed() ? too_large() : failed(exception);
    }
}

}  // namespace maru::wire
