// Every quantity that a peer controls, with its limit and the reason for it.
//
// Passing one is an error to that request (TOO_LARGE, AGAIN, QUOTA), never a crash or silence.
#pragma once

#include <cstddef>
#include <cstdint>

namespace maru::wire {

inline constexpr uint16_t kProtocolMajor = 1;  // a different major is refused, naming both
inline constexpr uint16_t kProtocolMinor = 0;  // a newer minor only adds capabilities

// One packet. 200 KiB would need a 256 KiB contiguous kernel buffer, which a fragmented host refuses.
inline constexpr size_t kMaxFrameBytes = 96 * 1024;

// Items per request, so that the request and its reply both fit in one frame.
inline constexpr uint32_t kMaxProbeKeys = 2048;  // 32 B each: 64 KiB
inline constexpr uint32_t kMaxBatchItems =
    1024;  // commit 72 B, acquire result 48 B, republish 88 B
inline constexpr uint32_t kMaxProbeObjects =
    65536;                                     // keys x manifest: bounds one probe's loop time
inline constexpr uint32_t kMaxRetired = 1024;  // replicas by one admin request: ask again
inline constexpr uint32_t kMaxListRows = 128;  // a listing is paged; a row may carry two texts

// Linux delivers at most 253 descriptors with one message (SCM_MAX_FD).
inline constexpr uint32_t kMaxDescriptors = 253;

inline constexpr size_t kMaxNamespaceBytes = 16 * 1024;  // a full text, not a path: JSON fits
inline constexpr size_t kMaxEngineIdBytes = 256;
inline constexpr size_t kMaxFormatBytes = 256;
inline constexpr size_t kMaxClientNameBytes = 64;
inline constexpr size_t kMaxCapabilities = 32;
inline constexpr size_t kMaxCapabilityBytes = 64;

// Requests of one connection that marud has read and not answered.
inline constexpr uint32_t kMaxInFlight = 256;

// Commits whose answer the client has not acknowledged, per session (32 B each).
inline constexpr uint32_t kMaxLedgerItems = 65536;

// Unsent bytes to one client before it is taken for dead (it asked, and does not read).
inline constexpr size_t kMaxSendQueueBytes = 4 * 1024 * 1024;

}  // namespace maru::wire
