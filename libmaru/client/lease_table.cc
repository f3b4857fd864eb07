#include "libmaru/client/lease_table.h"

namespace maru::client {

void LeaseTable::grow() {
    chunks_.push_back(std::make_unique<LeaseSlot[]>(kChunk));
    for (size_t i = 0; i < kChunk; ++i)
        append(&chunks_.back()[i]);
}

}  // namespace maru::client
