#include "daemon/directory/namespaces.h"

#include "daemon/directory/mutant.h"
#include "libmaru/wire/limits.h"

namespace maru::directory {

wire::Status Namespaces::add(uint32_t uid, std::string_view text, NamespaceIndex *ret_index) {
    if (text.empty())
        return wire::Status::InvalidArgument;
    if (text.size() > wire::kMaxNamespaceBytes)
        return wire::Status::TooLarge;
    const uint32_t owner = MARU_MUTANT(NamespaceOfAllUids) ? 0 : uid;
    auto found = by_text_.find(std::pair(owner, text));
    if (found == by_text_.end()) {
        uint32_t &count = of_uid_[uid];
        if (count >= limit_per_uid_)
            return wire::Status::Quota;
        if (records_.size() >= limit_)
            return wire::Status::Again;
        const auto index = static_cast<NamespaceIndex>(records_.size() + 1);
        found = by_text_.emplace(Key(owner, text), index).first;
        NamespaceRecord &record = records_.emplace_back();
        record.text = found->first.second;
        record.uid = uid;
        ++count;
    }
    *ret_index = found->second;
    return wire::Status::Ok;
}

wire::Status Namespaces::describe(NamespaceIndex index, uint64_t object_bytes,
                                  std::string_view format) {
    if (!contains(index))
        return wire::Status::NotFound;
    if (!object_bytes)
        return wire::Status::InvalidArgument;
    if (format.size() > wire::kMaxNamespaceBytes)
        return wire::Status::TooLarge;
    NamespaceRecord &record = (*this)[index];
    if (!record.object_bytes) {
        record.object_bytes = object_bytes;
        record.format = format;
        return wire::Status::Ok;
    }
    return record.object_bytes == object_bytes && record.format == format
               ? wire::Status::Ok
               : wire::Status::Incompatible;
}

size_t Namespaces::memory_bytes() const {
    size_t bytes = records_.capacity() * sizeof(NamespaceRecord);
    for (const NamespaceRecord &record : records_)
        bytes += record.text.size() + record.format.capacity() + 104;  // 104: a node of the map
    return bytes;
}

}  // namespace maru::directory
