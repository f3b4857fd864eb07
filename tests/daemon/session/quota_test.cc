#include "daemon/session/quota.h"

#include <gtest/gtest.h>

namespace maru {
namespace {

QuotaLimits limits() {
    return {.max_sessions = 4,
            .max_sessions_per_uid = 2,
            .max_segments_per_uid = 10,
            .host_bytes = 1000,
            .uid_bytes = 800,
            .worker_bytes = 500};
}

Quota::PoolCharge expect_charge(std::variant<Quota::PoolCharge, QuotaRefusal> outcome) {
    auto *charge = std::get_if<Quota::PoolCharge>(&outcome);
    EXPECT_NE(charge, nullptr) << std::get<QuotaRefusal>(outcome).message;
    return charge ? std::move(*charge) : Quota::PoolCharge{};
}

QuotaRefusal expect_refusal(std::variant<Quota::PoolCharge, QuotaRefusal> outcome) {
    auto *refusal = std::get_if<QuotaRefusal>(&outcome);
    EXPECT_NE(refusal, nullptr);
    return refusal ? *refusal : QuotaRefusal{};
}

TEST(Quota, EachLimitRefusesByItsNameAndNumbers) {
    Quota quota(limits());
    WorkerAccount a, b, c;
    QuotaRefusal over_worker = expect_refusal(quota.charge_pool(1, a, 501, 1));
    EXPECT_EQ(over_worker.status, wire::Status::Quota);
    EXPECT_EQ(over_worker.message, "worker grant in bytes: asked 501, used 0, limit 500");
    auto first = expect_charge(quota.charge_pool(1, a, 500, 1));
    QuotaRefusal over_uid = expect_refusal(quota.charge_pool(1, b, 301, 1));
    EXPECT_EQ(over_uid.status, wire::Status::Quota);
    EXPECT_EQ(over_uid.message, "uid 1 quota in bytes: asked 301, used 500, limit 800");
    auto second = expect_charge(quota.charge_pool(1, b, 300, 1));
    QuotaRefusal over_host = expect_refusal(quota.charge_pool(2, c, 201, 1));
    EXPECT_EQ(over_host.status, wire::Status::NoSpace);
    EXPECT_EQ(over_host.message, "host aggregate in bytes: asked 201, used 800, limit 1000");
    EXPECT_EQ(expect_refusal(quota.charge_pool(2, c, 1, 11)).status, wire::Status::Quota);
    EXPECT_EQ(quota.host_bytes(), 800u);  // refusals charge nothing
    EXPECT_EQ(c.bytes, 0u);
}

TEST(Quota, HugeRequestsDoNotWrapAround) {
    Quota quota(limits());
    WorkerAccount worker;
    auto held = expect_charge(quota.charge_pool(1, worker, 400, 1));
    expect_refusal(quota.charge_pool(1, worker, UINT64_MAX, 1));
    expect_refusal(quota.charge_pool(1, worker, UINT64_MAX - 399, 1));
    expect_refusal(quota.charge_pool(1, worker, 1, UINT64_MAX));
}

TEST(Quota, AChargeIsReturnedExactlyOnce) {
    Quota quota(limits());
    WorkerAccount worker;
    {
        auto charge = expect_charge(quota.charge_pool(1, worker, 400, 3));
        Quota::PoolCharge moved = std::move(charge);
        EXPECT_FALSE(charge.held());
        EXPECT_EQ(quota.uid_bytes(1), 400u);
        moved.release();
        moved.release();
        EXPECT_EQ(quota.host_bytes(), 0u);
    }
    EXPECT_EQ(quota.host_bytes(), 0u);
    EXPECT_EQ(worker.bytes, 0u);
    expect_charge(quota.charge_pool(1, worker, 500, 10));
}

TEST(Quota, WhatCannotBeProvenStaysOnTheUidAlone) {
    Quota quota(limits());
    WorkerAccount worker;
    auto charge = expect_charge(quota.charge_pool(1, worker, 400, 4));
    charge.keep_only(100, 1);
    EXPECT_EQ(worker.bytes, 0u);
    EXPECT_EQ(quota.uid_bytes(1), 100u);
    EXPECT_EQ(quota.host_bytes(), 100u);
}

TEST(Quota, RecordsAreChargedEvenAboveTheLimits) {
    Quota quota(limits());
    WorkerAccount worker, other;
    auto recorded = quota.recorded_pool(1, worker, 5000, 100);
    EXPECT_EQ(quota.host_bytes(), 5000u);
    EXPECT_EQ(expect_refusal(quota.charge_pool(2, other, 1, 1)).status, wire::Status::NoSpace);
}

TEST(Quota, SessionsAreBoundedPerUidAndInAll) {
    Quota quota(limits());
    std::vector<Quota::SessionCharge> held;
    auto take = [&](uint32_t uid) {
        auto outcome = quota.charge_session(uid);
        if (auto *charge = std::get_if<Quota::SessionCharge>(&outcome)) {
            held.push_back(std::move(*charge));
            return std::string();
        }
        return std::get<QuotaRefusal>(outcome).message;
    };
    EXPECT_EQ(take(1), "");
    EXPECT_EQ(take(1), "");
    EXPECT_EQ(take(1), "uid 1 quota in sessions: asked 1, used 2, limit 2");
    EXPECT_EQ(take(2), "");
    EXPECT_EQ(take(2), "");
    EXPECT_EQ(take(3), "marud in sessions: asked 1, used 4, limit 4");
    held.pop_back();
    EXPECT_EQ(take(3), "");
}

}  // namespace
}  // namespace maru
