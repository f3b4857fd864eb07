// Probe: promises nothing, takes nothing, allocates nothing.
#include <algorithm>
#include <cassert>

#include "daemon/directory/manifest_reader.h"

namespace maru {
namespace {

// Leading keys of which all items are readable; `bitmap` has their bits and those of the others that
// are, and 0 for all that were not asked for.
template <typename Reader>
uint32_t probe_keys(Reader &&items, size_t keys, bool stop_at_miss,
                    std::span<uint8_t> bitmap) noexcept {
    const uint64_t per_key = items.per_key();
    size_t prefix = 0;
    size_t key = 0;
    uint8_t byte = 0;
    for (; key < keys; ++key) {
        bool hit = true;
        for (uint64_t item = 0; hit && item < per_key; ++item)
            hit = items.next() != kNone;
        if (hit) {
            byte = static_cast<uint8_t>(byte | 1u << key % 8);
            prefix += prefix == key;
        } else if (stop_at_miss) {
            break;
        } else {
            items.skip_key();
        }
        if (key % 8 == 7) {
            bitmap[key / 8] = byte;
            byte = 0;
        }
    }
    if (key / 8 < bitmap.size()) {
        bitmap[key / 8] = byte;
        std::fill(bitmap.begin() + static_cast<ptrdiff_t>(key / 8) + 1, bitmap.end(), uint8_t{0});
    }
    return static_cast<uint32_t>(prefix);
}

}  // namespace

uint32_t Directory::probe(HolderIndex reader, NamespaceIndex ns, std::span<const wire::Digest> keys,
                          const wire::Manifest &manifest, bool stop_at_miss,
                          std::span<uint8_t> bitmap) const noexcept {
    const size_t bytes = keys.size() / 8 + (keys.size() % 8 != 0);
    assert(bitmap.size() >= bytes);
    bitmap = bitmap.first(bytes);
    const uint64_t per_key = objects_of(manifest);
    if (!per_key || !impl_->namespaces.contains(ns)) {
        std::fill(bitmap.begin(), bitmap.end(), uint8_t{0});
        return 0;
    }

    if (per_key == 1)
        return probe_keys(Impl::KeyReader(*impl_, reader, ns, keys, manifest), keys.size(),
                          stop_at_miss, bitmap);
    return probe_keys(Impl::ManifestReader(*impl_, reader, ns, keys, manifest), keys.size(),
                      stop_at_miss, bitmap);
}

}  // namespace maru
