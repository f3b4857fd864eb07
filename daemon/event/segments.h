// Segments: the memfds marud holds, one descriptor each, and what is being done to them.
//
// Everything that can block runs on the reaper with the file kept alive by the job; its result
// comes back through SegmentFacts on the loop thread, never from inside the call that asked. A
// segment that is dropped is gone at once; a file that was still being made for it is closed when
// it comes.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "daemon/event/fdstore.h"
#include "daemon/event/reaper.h"
#include "daemon/event/segment_file.h"

namespace maru {

class SegmentFacts {
  public:
    virtual ~SegmentFacts() = default;
    virtual void segment_created(SegmentRef segment,
                                 const Result<Service::CreatedSegment> &result) = 0;
    virtual void segment_sealed(SegmentRef segment, const Result<void> &result) = 0;
    virtual void segment_proven(SegmentRef segment, Service::Proof proof) = 0;
};

class Segments {
  public:
    Segments(Reaper &reaper, FdStore &fdstore, SegmentFacts &facts)
        : reaper_(reaper), fdstore_(fdstore), facts_(facts) {}

    // `uid`: whose it is; a job of his that gets stuck delays only himself.
    void create(SegmentRef segment, const SegmentSpec &spec, uint32_t uid);
    void seal(SegmentRef segment);
    void prove(SegmentRef segment);
    void drop(SegmentRef segment);

    // From the fd store, or from a client whose word Service has accepted.
    void adopt(SegmentRef segment, UniqueFd fd, uint32_t uid, bool stored);
    bool holds(SegmentRef segment) const { return entries_.contains(segment); }
    int fd(SegmentRef segment) const;  // -1: not held. Borrowed until the next call
    size_t count() const { return entries_.size(); }

  private:
    struct Entry {
        std::shared_ptr<UniqueFd> file;  // owners: this table, and jobs that work on it
        uint32_t uid = 0;
    };
    void insert(SegmentRef segment, UniqueFd fd, uint32_t uid, bool stored);
    Entry *find(SegmentRef segment);

    Reaper &reaper_;
    FdStore &fdstore_;
    SegmentFacts &facts_;  // all three are Host's, as is this
    std::map<SegmentRef, Entry> entries_;
    std::map<SegmentRef, uint64_t> creating_;  // the job whose answer counts
    uint64_t next_job_ = 1;
};

}  // namespace maru
