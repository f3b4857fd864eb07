// Namespaces: (uid, full text) -> number, and what the first describer said of the objects in it.
//
// Numbers are given in order and never taken back, so that a number names one text of one uid for a
// whole life of marud. The whole text is the key: no hash of it could merge two of them. The uid is
// part of it, because whoever describes a namespace first fixes the size of its objects: a stranger
// who knows the text must not be able to lock its users out, nor to use up the numbers of others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/directory/directory.h"
#include "daemon/directory/slab.h"

namespace maru::directory {

struct NamespaceRecord {
    std::string_view text;      // in the key in the map, which never moves
    uint32_t uid = 0;           // whose it is
    uint64_t object_bytes = 0;  // 0: nobody has described it yet
    std::string format;
    uint32_t first_object = kNone;
    uint64_t objects = 0;
    uint64_t replicas = 0;
};

class Namespaces {
  public:
    Namespaces(uint32_t limit, uint32_t limit_per_uid)
        : limit_(limit), limit_per_uid_(limit_per_uid) {}

    wire::Status add(uint32_t uid, std::string_view text, NamespaceIndex *ret_index);
    void set_limit_per_uid(uint32_t limit) { limit_per_uid_ = limit; }
    wire::Status describe(NamespaceIndex index, uint64_t object_bytes, std::string_view format);

    bool contains(NamespaceIndex index) const { return index && index <= records_.size(); }
    NamespaceRecord &operator[](NamespaceIndex index) { return records_[index - 1]; }
    const NamespaceRecord &operator[](NamespaceIndex index) const { return records_[index - 1]; }
    uint32_t size() const { return static_cast<uint32_t>(records_.size()); }
    size_t memory_bytes() const;

  private:
    using Key = std::pair<uint32_t, std::string>;
    struct KeyLess {  // looks up by a view, so that a known text costs no copy of it
        using is_transparent = void;
        template <typename A, typename B>
        bool operator()(const A &a, const B &b) const {
            return a.first != b.first ? a.first < b.first
                                      : std::string_view(a.second) < std::string_view(b.second);
        }
    };

    uint32_t limit_, limit_per_uid_;
    std::map<Key, NamespaceIndex, KeyLess> by_text_;
    std::unordered_map<uint32_t, uint32_t> of_uid_;  // how many
    std::vector<NamespaceRecord> records_;
};

}  // namespace maru::directory
