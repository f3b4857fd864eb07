// Quota: how much of what everybody has, and the obligation to give it back.
//
// Four sums: host (CPU bytes), uid (bytes, segments, sessions), worker (bytes). A charge is an
// object; whoever holds it owes the return and cannot forget it. Nothing is ever returned by a
// clock: the owner of a charge destroys it on an acknowledgement or a proof. Charges taken from a
// record of an earlier life are never refused, whatever the limits are now: the memory is there.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>

#include "libmaru/wire/records.h"

namespace maru {

struct QuotaLimits {
    uint32_t max_sessions = 0;
    uint32_t max_sessions_per_uid = 0;
    uint32_t max_segments_per_uid = 0;
    uint64_t host_bytes = 0;
    uint64_t uid_bytes = 0;
    uint64_t worker_bytes = 0;
};

struct QuotaRefusal {
    wire::Status status = wire::Status::Quota;
    std::string message;  // names asked, used and limit
};

struct WorkerAccount {  // lives in the session; outlives the charges that name it
    uint64_t bytes = 0;
};

class Quota {
  public:
    explicit Quota(const QuotaLimits &limits) : limits_(limits) {}
    Quota(const Quota &) = delete;
    Quota &operator=(const Quota &) = delete;
    ~Quota();  // every charge has been returned

    class PoolCharge {
      public:
        PoolCharge() = default;
        PoolCharge(PoolCharge &&other) noexcept;
        PoolCharge &operator=(PoolCharge &&other) noexcept;
        ~PoolCharge() { release(); }
        void release();
        // Keeps `bytes` and `segments` of it, on the uid alone: the worker is gone.
        void keep_only(uint64_t bytes, uint32_t segments);
        uint64_t bytes() const { return bytes_; }
        uint32_t uid() const { return uid_; }
        bool held() const { return quota_ != nullptr; }

      private:
        friend class Quota;
        Quota *quota_ = nullptr;  // outlives every charge: both belong to Service
        WorkerAccount *worker_ = nullptr;
        uint32_t uid_ = 0;
        uint64_t bytes_ = 0;
        uint32_t segments_ = 0;
    };

    class SessionCharge {
      public:
        SessionCharge() = default;
        SessionCharge(SessionCharge &&other) noexcept
            : quota_(std::exchange(other.quota_, nullptr)), uid_(other.uid_) {}
        SessionCharge &operator=(SessionCharge &&other) noexcept;
        ~SessionCharge() { release(); }
        void release();

      private:
        friend class Quota;
        Quota *quota_ = nullptr;
        uint32_t uid_ = 0;
    };

    std::variant<PoolCharge, QuotaRefusal> charge_pool(uint32_t uid, WorkerAccount &worker,
                                                       uint64_t bytes, uint64_t segments);
    std::variant<SessionCharge, QuotaRefusal> charge_session(uint32_t uid);
    // Of a record: it is there already, so it is never refused.
    PoolCharge recorded_pool(uint32_t uid, WorkerAccount &worker, uint64_t bytes,
                             uint32_t segments);
    SessionCharge recorded_session(uint32_t uid);

    void set_limits(const QuotaLimits &limits) { limits_ = limits; }
    const QuotaLimits &limits() const { return limits_; }
    uint64_t host_bytes() const { return host_bytes_; }
    uint64_t uid_bytes(uint32_t uid) const;
    uint32_t sessions() const { return sessions_; }

  private:
    struct Account {
        uint64_t bytes = 0;
        uint64_t segments = 0;
        uint32_t sessions = 0;
        bool empty() const { return !bytes && !segments && !sessions; }
    };
    void give_back(uint32_t uid, WorkerAccount *worker, uint64_t bytes, uint32_t segments);
    void forget_if_empty(uint32_t uid);

    QuotaLimits limits_;
    uint64_t host_bytes_ = 0;
    uint32_t sessions_ = 0;
    std::unordered_map<uint32_t, Account> uids_;
};

}  // namespace maru
