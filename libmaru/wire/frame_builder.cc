#include "libmaru/wire/frame_builder.h"

#include <kj/exception.h>

#include <cerrno>
#include <cstring>

namespace maru::wire {

FrameBuffer::FrameBuffer() : words_(new capnp::word[kTableWords + kSegmentWords]()) {}
FrameBuffer::~FrameBuffer() = default;

kj::ArrayPtr<capnp::word> FrameBuffer::Builder::allocateSegment(unsigned minimum_words) {
    if (given_ || minimum_words > space_.size()) {
        overflowed_ = true;
        kj::throwFatalException(
            kj::Exception(kj::Exception::Type::FAILED, __FILE__, __LINE__, kj::heapString("full")));
    }
    given_ = true;
    return space_;
}

void FrameBuffer::clear() {
    std::memset(static_cast<void *>(words_.get() + kTableWords), 0, used_ * sizeof(capnp::word));
    used_ = 0;
}

Result<std::span<const std::byte>> FrameBuffer::finish(capnp::MessageBuilder &message) {
    const auto segments = message.getSegmentsForOutput();
    if (segments.size() != 1)
        return too_large();
    used_ = segments[0].size();
    const uint32_t table[2] = {0,
                               static_cast<uint32_t>(used_)};  // segments - 1, words of the first
    std::memcpy(static_cast<void *>(words_.get()), table, sizeof table);
    return std::span(reinterpret_cast<const std::byte *>(words_.get()),
                     (kTableWords + used_) * sizeof(capnp::word));
}

Error FrameBuffer::too_large() {
    return Error{EMSGSIZE, "encode message: over the limit of " + std::to_string(kMaxFrameBytes) +
                               " bytes per frame"};
}

Error FrameBuffer::failed(const kj::Exception &exception) {
    // getDescription() only: what() would run addr2line.
    return Error{EINVAL, "encode message: " + std::string(exception.getDescription().cStr())};
}

}  // namespace maru::wire
