#include "daemon/event/segments.h"

#include <cerrno>
#include <cstdio>

namespace maru {

Segments::Entry *Segments::find(SegmentRef segment) {
    auto found = entries_.find(segment);
    return found == entries_.end() ? nullptr : &found->second;
}

int Segments::fd(SegmentRef segment) const {
    auto found = entries_.find(segment);
    return found == entries_.end() ? -1 : found->second.file->get();
}

void Segments::insert(SegmentRef segment, UniqueFd fd, uint32_t uid, bool stored) {
    drop(segment);
    if (!stored)
        fdstore_.store(segment_fd_name(segment), fd.get());
    entries_[segment] = Entry{std::make_shared<UniqueFd>(std::move(fd)), uid};
}

void Segments::create(SegmentRef segment, const SegmentSpec &spec, uint32_t uid) {
    uint64_t job = next_job_++;
    creating_[segment] = job;
    // Shared because std::function must be copyable; in truth it has one owner at a time.
    auto made = std::make_shared<Result<SegmentFile>>(Error{ECANCELED, "create a segment"});
    reaper_.submit(uid, [this, segment, spec, uid, job, made]() -> Reaper::Done {
        // Shown in /proc/PID/maps of whoever maps it.
        std::string name = "maru-" + segment_fd_name(segment).substr(4);
        *made = make_segment_file(name, spec.bytes, spec.huge_pages);
        return [this, segment, uid, job, made] {
            auto asked = creating_.find(segment);
            bool wanted = asked != creating_.end() && asked->second == job;
            if (wanted)
                creating_.erase(asked);
            Result<SegmentFile> &result = *made;
            if (!wanted) {
                if (result)
                    reaper_.close(uid, std::move(result->fd));
                return;
            }
            if (!result) {
                facts_.segment_created(segment, result.error());
                return;
            }
            Service::CreatedSegment created{result->huge, result->identity};
            insert(segment, std::move(result->fd), uid, false);
            facts_.segment_created(segment, created);
        };
    });
}

void Segments::seal(SegmentRef segment) {
    Entry *entry = find(segment);
    // A uid that is not known has nothing to block with.
    reaper_.submit(entry ? entry->uid : 0,
                   [this, segment, file = entry ? entry->file : nullptr]() mutable -> Reaper::Done {
                       Result<void> result =
                           file ? seal_future_write(file->get())
                                : Error{EBADF, "seal a segment that marud does not hold"};
                       file.reset();  // possibly the last owner: closed here and not on the loop
                       return [this, segment, result] { facts_.segment_sealed(segment, result); };
                   });
}

void Segments::prove(SegmentRef segment) {
    Entry *entry = find(segment);
    reaper_.submit(entry ? entry->uid : 0,
                   [this, segment, file = entry ? entry->file : nullptr]() mutable -> Reaper::Done {
                       WriteSeal seal = file ? try_seal_write(file->get()) : WriteSeal::Refused;
                       file.reset();
                       return [this, segment, seal] {
                           auto proof = seal == WriteSeal::Granted ? Service::Proof::Proven
                                        : seal == WriteSeal::StillMapped
                                            ? Service::Proof::StillMapped
                                            : Service::Proof::Refused;
                           facts_.segment_proven(segment, proof);
                       };
                   });
}

void Segments::drop(SegmentRef segment) {
    creating_.erase(segment);
    auto found = entries_.find(segment);
    if (found == entries_.end())
        return;
    fdstore_.remove(segment_fd_name(segment));
    uint32_t uid = found->second.uid;
    // Freeing a segment that nobody else holds takes 150 ms per GiB: not here.
    reaper_.submit(uid, [file = std::move(found->second.file)]() mutable -> Reaper::Done {
        file.reset();
        return nullptr;
    });
    entries_.erase(found);
}

void Segments::adopt(SegmentRef segment, UniqueFd fd, uint32_t uid, bool stored) {
    insert(segment, std::move(fd), uid, stored);
}

}  // namespace maru
