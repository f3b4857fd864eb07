// The items of keys x manifest, in order, looked up a batch ahead.
//
// KeyReader where each key is one object, which is nearly always: it has no place in a manifest to keep.
// ManifestReader for all others.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "daemon/directory/impl.h"

namespace maru {

// Objects per key; 0 for a manifest that names none, or shards or parts past 2^32: never a hit.
constexpr uint64_t objects_of(const wire::Manifest &manifest) {
    constexpr uint64_t kLimit = uint64_t{1} << 32;
    if (uint64_t{manifest.first_shard} + manifest.shard_count > kLimit ||
        uint64_t{manifest.first_part} + manifest.part_count > kLimit)
        return 0;
    return uint64_t{manifest.shard_count} * manifest.part_count;
}

class Directory::Impl::KeyReader {
  public:
    KeyReader(const Impl &impl, HolderIndex reader, NamespaceIndex ns,
              std::span<const wire::Digest> keys, const wire::Manifest &manifest)
        : impl_(impl),
          reader_(reader),
          ns_(ns),
          shard_(manifest.first_shard),
          part_(manifest.first_part),
          rest_(keys) {}
    static constexpr uint64_t per_key() { return 1; }

    // The readable replica of the next item, or kNone.
    uint32_t next() noexcept {
        if (at_ == filled_)
            fill();
        return replicas_[at_++];
    }
    void skip_key() noexcept {}  // its only item was read

  private:
    void fill() noexcept {
        filled_ = static_cast<uint32_t>(std::min<size_t>(rest_.size(), kLookupBatch));
        at_ = 0;
        impl_.lookup(reader_, ns_, rest_.data(), shard_, part_, filled_, replicas_);
        rest_ = rest_.subspan(filled_);
    }

    const Impl &impl_;
    const HolderIndex reader_;
    const NamespaceIndex ns_;
    const uint32_t shard_, part_;
    std::span<const wire::Digest> rest_;  // not looked up yet
    uint32_t at_ = 0, filled_ = 0;
    uint32_t replicas_[kLookupBatch];
};

class Directory::Impl::ManifestReader {
  public:
    ManifestReader(const Impl &impl, HolderIndex reader, NamespaceIndex ns,
                   std::span<const wire::Digest> keys, const wire::Manifest &manifest)
        : impl_(impl),
          reader_(reader),
          ns_(ns),
          keys_(keys),
          manifest_(manifest),
          per_key_(objects_of(manifest)) {}
    uint64_t per_key() const { return per_key_; }

    uint32_t next() noexcept {
        if (at_ == filled_)
            fill();
        const uint32_t replica = replicas_[at_++];
        if (++item_ == per_key_) {
            item_ = 0;
            ++key_;
        }
        return replica;
    }
    // On to the next key: a miss of one item settles its key, however many items it has.
    void skip_key() noexcept {
        if (!item_)
            return;
        const uint64_t rest = per_key_ - item_;
        item_ = 0;
        ++key_;
        if (rest <= filled_ - at_) {
            at_ += static_cast<uint32_t>(rest);
        } else {
            at_ = filled_;
            place_ = Place{key_, 0, 0};
        }
    }

  private:
    void fill() noexcept {
        // What is left, at most a batch: the product of what a client chose is never formed.
        const uint64_t batch = kLookupBatch;
        const uint64_t later = std::min<uint64_t>(keys_.size() - key_ - 1, batch);
        const uint64_t left = std::min(per_key_ - item_, batch) + std::min(per_key_, batch) * later;
        filled_ = static_cast<uint32_t>(std::min(left, batch));
        at_ = 0;
        impl_.lookup(reader_, ns_, keys_, manifest_, place_, filled_, replicas_);
    }

    const Impl &impl_;
    const HolderIndex reader_;
    const NamespaceIndex ns_;
    const std::span<const wire::Digest> keys_;
    const wire::Manifest manifest_;
    const uint64_t per_key_;

    size_t key_ = 0;     // of the next item
    uint64_t item_ = 0;  // in its key
    Place place_;        // where the next batch begins
    uint32_t at_ = 0, filled_ = 0;
    uint32_t replicas_[kLookupBatch];
};

}  // namespace maru
