#include "daemon/session/quota.h"

#include <cassert>

namespace maru {
namespace {

std::string over(const char *whose, const char *what, uint64_t asked, uint64_t used,
                 uint64_t limit) {
    return std::string(whose) + " " + what + ": asked " + std::to_string(asked) + ", used " +
           std::to_string(used) + ", limit " + std::to_string(limit);
}

bool fits(uint64_t asked, uint64_t used, uint64_t limit) {
    return used <= limit && asked <= limit - used;
}

}  // namespace

Quota::~Quota() { assert(uids_.empty()); }

std::variant<Quota::PoolCharge, QuotaRefusal> Quota::charge_pool(uint32_t uid,
                                                                 WorkerAccount &worker,
                                                                 uint64_t bytes,
                                                                 uint64_t segments) {
    static constexpr Account kNothing;
    auto found = uids_.find(uid);
    const Account &account = found == uids_.end() ? kNothing : found->second;
    std::string of_uid = "uid " + std::to_string(uid);
    if (!fits(bytes, worker.bytes, limits_.worker_bytes))
        return QuotaRefusal{wire::Status::Quota, over("worker grant", "in bytes", bytes,
                                                      worker.bytes, limits_.worker_bytes)};
    if (!fits(bytes, account.bytes, limits_.uid_bytes))
        return QuotaRefusal{wire::Status::Quota, over(of_uid.c_str(), "quota in bytes", bytes,
                                                      account.bytes, limits_.uid_bytes)};
    if (!fits(segments, account.segments, limits_.max_segments_per_uid))
        return QuotaRefusal{wire::Status::Quota,
                            over(of_uid.c_str(), "quota in segments (one descriptor each)",
                                 segments, account.segments, limits_.max_segments_per_uid)};
    if (!fits(bytes, host_bytes_, limits_.host_bytes))
        return QuotaRefusal{wire::Status::NoSpace, over("host aggregate", "in bytes", bytes,
                                                        host_bytes_, limits_.host_bytes)};
    return recorded_pool(uid, worker, bytes, static_cast<uint32_t>(segments));
}

Quota::PoolCharge Quota::recorded_pool(uint32_t uid, WorkerAccount &worker, uint64_t bytes,
                                       uint32_t segments) {
    Account &account = uids_[uid];
    account.bytes += bytes;
    account.segments += segments;
    worker.bytes += bytes;
    host_bytes_ += bytes;
    PoolCharge charge;
    charge.quota_ = this;
    charge.worker_ = &worker;
    charge.uid_ = uid;
    charge.bytes_ = bytes;
    charge.segments_ = segments;
    return charge;
}

std::variant<Quota::SessionCharge, QuotaRefusal> Quota::charge_session(uint32_t uid) {
    auto found = uids_.find(uid);
    uint32_t used = found == uids_.end() ? 0 : found->second.sessions;
    std::string of_uid = "uid " + std::to_string(uid);
    if (!fits(1, used, limits_.max_sessions_per_uid))
        return QuotaRefusal{wire::Status::Quota, over(of_uid.c_str(), "quota in sessions", 1, used,
                                                      limits_.max_sessions_per_uid)};
    if (!fits(1, sessions_, limits_.max_sessions))
        return QuotaRefusal{wire::Status::Quota,
                            over("marud", "in sessions", 1, sessions_, limits_.max_sessions)};
    return recorded_session(uid);
}

Quota::SessionCharge Quota::recorded_session(uint32_t uid) {
    ++uids_[uid].sessions;
    ++sessions_;
    SessionCharge charge;
    charge.quota_ = this;
    charge.uid_ = uid;
    return charge;
}

uint64_t Quota::uid_bytes(uint32_t uid) const {
    auto found = uids_.find(uid);
    return found == uids_.end() ? 0 : found->second.bytes;
}

void Quota::give_back(uint32_t uid, WorkerAccount *worker, uint64_t bytes, uint32_t segments) {
    Account &account = uids_[uid];
    assert(account.bytes >= bytes && account.segments >= segments && host_bytes_ >= bytes);
    account.bytes -= bytes;
    account.segments -= segments;
    host_bytes_ -= bytes;
    if (worker) {
        assert(worker->bytes >= bytes);
        worker->bytes -= bytes;
    }
    forget_if_empty(uid);
}

void Quota::forget_if_empty(uint32_t uid) {
    if (auto found = uids_.find(uid); found != uids_.end() && found->second.empty())
        uids_.erase(found);
}

Quota::PoolCharge::PoolCharge(PoolCharge &&other) noexcept
    : quota_(std::exchange(other.quota_, nullptr)),
      worker_(std::exchange(other.worker_, nullptr)),
      uid_(other.uid_),
      bytes_(std::exchange(other.bytes_, 0)),
      segments_(std::exchange(other.segments_, 0)) {}

Quota::PoolCharge &Quota::PoolCharge::operator=(PoolCharge &&other) noexcept {
    if (this != &other) {
        release();
        quota_ = std::exchange(other.quota_, nullptr);
        worker_ = std::exchange(other.worker_, nullptr);
        uid_ = other.uid_;
        bytes_ = std::exchange(other.bytes_, 0);
        segments_ = std::exchange(other.segments_, 0);
    }
    return *this;
}

void Quota::PoolCharge::release() {
    if (!quota_)
        return;
    std::exchange(quota_, nullptr)->give_back(uid_, worker_, bytes_, segments_);
    bytes_ = 0;
    segments_ = 0;
}

void Quota::PoolCharge::keep_only(uint64_t bytes, uint32_t segments) {
    assert(quota_ && bytes <= bytes_ && segments <= segments_);
    if (worker_)
        worker_->bytes -= bytes_;
    worker_ = nullptr;
    quota_->give_back(uid_, nullptr, bytes_ - bytes, segments_ - segments);
    bytes_ = bytes;
    segments_ = segments;
}

Quota::SessionCharge &Quota::SessionCharge::operator=(SessionCharge &&other) noexcept {
    if (this != &other) {
        release();
        quota_ = std::exchange(other.quota_, nullptr);
        uid_ = other.uid_;
    }
    return *this;
}

void Quota::SessionCharge::release() {
    if (!quota_)
        return;
    Quota *quota = std::exchange(quota_, nullptr);
    Account &account = quota->uids_[uid_];
    assert(account.sessions > 0 && quota->sessions_ > 0);
    --account.sessions;
    --quota->sessions_;
    quota->forget_if_empty(uid_);
}

}  // namespace maru
