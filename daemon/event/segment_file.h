// The memfd behind one segment: made, sealed, proven and checked here.
//
// marud never writes, reads, populates or fallocates a page of it: each would charge marud's cgroup
// for memory that the worker must pay. The only mapping marud makes is the one that reserves huge
// pages, which touches none.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/protocol/service.h"
#include "libmaru/base/result.h"
#include "libmaru/base/unique_fd.h"

namespace maru {

struct SegmentFile {
    UniqueFd fd;
    SegmentIdentity identity;
    bool huge = false;  // on huge pages, which are reserved for it
};

// A memfd of `bytes`, mode 0600, not executable where the kernel knows that, sealed against another
// size. May block (huge pages). Errors: ENOMEM naming huge pages, needed and free; EMFILE; EINVAL.
Result<SegmentFile> make_segment_file(const std::string &name, uint64_t bytes,
                                      wire::HugePages huge_pages);

// F_SEAL_FUTURE_WRITE: no new writable mapping, no write, no hole; mappings that exist go on. May
// wait for the file's lock, which its owner can hold for long (a fallocate): not for the loop.
Result<void> seal_future_write(int fd);

// F_SEAL_WRITE succeeds only when no writable mapping and no page pin is left anywhere. Blocks up
// to some 170 ms while pages are pinned.
enum class WriteSeal { Granted, StillMapped, Refused };
bool sealed_against_writing(int fd);  // F_SEAL_WRITE is there: nothing can ever write it
WriteSeal try_seal_write(int fd);

// Another open file of the same segment, for reading only; it cannot be mapped writable, nor can it
// add a seal. EPERM: the segment is not sealed against new writers, so no reader may have it yet.
Result<UniqueFd> open_for_reading(int fd);

// What a descriptor from a client, or from the fd store, is. Seals are asked first because that
// calls no file system; what has them is a memfd, so that fstat cannot hang. One that is not open
// for reading and writing counts as unsealed: its release could not be proven through it.
AttachedDescriptor inspect_descriptor(int fd);

}  // namespace maru
