// What marud itself has recorded of shared memory, for its next life: which replicas are READY in
// pools of scope Host, and which segments it has adopted. No worker's word replaces it.
//
// A list of facts in the order in which they became true. Each is appended before the reply or the
// event that lets anybody rely on it; a list with a gap in it is worth nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "daemon/session/types.h"

namespace maru {

struct RecordedNamespace {  // before the first object in it
    uint32_t number = 0;    // as later facts name it
    uint32_t uid = 0;
    uint64_t object_bytes = 0;
    std::string text, format;
};
struct RecordedObject {  // READY from here
    uint32_t ns = 0;
    wire::CommitItem item;
};
struct RecordedRetirement {  // no longer, for good
    wire::Id pool = 0;
    uint64_t offset = 0, generation = 0;
};
struct RecordedAdoption {  // of what is READY in it; its worker's pool ends without it
    SegmentRef segment;
    uint32_t uid = 0;
    uint64_t segment_bytes = 0, first_offset = 0, bytes = 0;
    uint32_t page_bytes = 0;
    bool huge = false;
    SegmentIdentity identity;
    std::string engine;
};
struct RecordedEnd {  // segment UINT32_MAX: a worker's pool, without what was adopted of it
    SegmentRef segment;
};
using ObjectRecord = std::variant<RecordedNamespace, RecordedObject, RecordedRetirement,
                                  RecordedAdoption, RecordedEnd>;

// The segments that are adopted where the list ends.
std::vector<RecordedAdoption> adoptions_in(std::span<const ObjectRecord> records);

}  // namespace maru
