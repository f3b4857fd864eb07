// Namespaces: full text -> number, and what the first describer said of the objects in it.
//
// Numbers are given in order and never taken back, so that a number names one text for a whole
// life of marud. The whole text is the key: no hash of it could merge two of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/directory/directory.h"
#include "daemon/directory/slab.h"

namespace maru::directory {

struct NamespaceRecord {
    std::string_view text;      // the key in the map, which never moves
    uint64_t object_bytes = 0;  // 0: nobody has described it yet
    std::string format;
    uint32_t first_object = kNone;
    uint64_t objects = 0;
    uint64_t replicas = 0;
};

class Namespaces {
  public:
    explicit Namespaces(uint32_t limit) : limit_(limit) {}

    wire::Status add(std::string_view text, NamespaceIndex *ret_index);
    wire::Status describe(NamespaceIndex index, uint64_t object_bytes, std::string_view format);

    bool contains(NamespaceIndex index) const { return index && index <= records_.size(); }
    NamespaceRecord &operator[](NamespaceIndex index) { return records_[index - 1]; }
    const NamespaceRecord &operator[](NamespaceIndex index) const { return records_[index - 1]; }
    uint32_t size() const { return static_cast<uint32_t>(records_.size()); }
    size_t memory_bytes() const;

  private:
    uint32_t limit_;
    std::map<std::string, NamespaceIndex, std::less<>> by_text_;
    std::vector<NamespaceRecord> records_;
};

}  // namespace maru::directory
