#include "maru/pool.h"

#include <bit>

#include "libmaru/capi/handles.h"

namespace maru::capi {
namespace {

constexpr uint64_t kDefaultPage = 64 * 1024;
constexpr uint64_t kLeastPage = 4 * 1024;
constexpr uint64_t kLargestPage = uint64_t{1} << 30;

int open_pool(maru_client *client, const maru_pool_options *options, maru_pool **ret_pool) {
    if (int bad = check(client, "client"))
        return bad;
    maru_pool_options in{};
    if (int bad = read_options(options, "options", offsetof(maru_pool_options, page_bytes), in))
        return bad;
    if (!ret_pool)
        return fail(EINVAL, "ret_pool: must not be NULL");
    client::Session &session = *inside(client);
    if (session.options().role != wire::Role::Worker)
        return fail(EACCES, "a scheduler is metadata-only: it opens no pool");
    client::PoolOptions out;
    out.page_bytes = in.page_bytes ? in.page_bytes : kDefaultPage;
    if (!std::has_single_bit(out.page_bytes) || out.page_bytes < kLeastPage ||
        out.page_bytes > kLargestPage)
        return fail(EINVAL, "options->page_bytes: is " + std::to_string(in.page_bytes) +
                                ", must be a power of two from 4096 to 1073741824");
    if (in.capacity_bytes < out.page_bytes || in.capacity_bytes > INT64_MAX)
        return fail(EINVAL, "options->capacity_bytes: is " + std::to_string(in.capacity_bytes) +
                                ", must be at least one page (" + std::to_string(out.page_bytes) +
                                ")");
    if (in.medium == MARU_MEDIUM_CXL)
        return fail(EOPNOTSUPP,
                    "options->medium: this version has no CXL pools (mixed_storage_v1)");
    if (in.medium != MARU_MEDIUM_CPU)
        return fail(EINVAL, "options->medium: must be MARU_MEDIUM_CPU or MARU_MEDIUM_CXL");
    if (in.scope > MARU_SCOPE_HOST)
        return fail(EINVAL, "options->scope: must be MARU_SCOPE_WORKER or MARU_SCOPE_HOST");
    if (in.reserved_0 != 0)
        return fail(EINVAL, "options->reserved_0: must be 0");
    if (in.huge_pages > MARU_HUGE_REQUIRED)
        return fail(EINVAL, "options->huge_pages: must be MARU_HUGE_OFF, _TRY or _REQUIRED");
    if (in.numa > MARU_NUMA_STRICT)
        return fail(EINVAL, "options->numa: must be MARU_NUMA_OFF, _AUTO or _STRICT");
    if (in.numa != MARU_NUMA_OFF && in.numa_node < -1)
        return fail(EINVAL, "options->numa_node: must be a node, or -1 for the caller's own");
    if (!session.has_capability("cpu_storage_v1"))
        return fail(EOPNOTSUPP, "this marud does not offer cpu_storage_v1");
    if (in.scope == MARU_SCOPE_HOST && !session.has_capability("shared_storage_v1"))
        return fail(EOPNOTSUPP,
                    "options->scope: this marud does not offer shared_storage_v1; use "
                    "MARU_SCOPE_WORKER");
    out.scope = static_cast<wire::Scope>(in.scope);
    out.capacity_bytes = in.capacity_bytes;
    out.huge_pages = static_cast<wire::HugePages>(in.huge_pages);
    out.numa = static_cast<wire::Numa>(in.numa);
    out.numa_node = in.numa == MARU_NUMA_OFF ? -1 : in.numa_node;
    out.wait_populated = in.wait_populated != 0;
    if (in.populate_margin_mib)
        out.margin_bytes = uint64_t{in.populate_margin_mib} << 20;
    auto pool = client::Pool::open(session, out);
    if (!pool)
        return fail(pool.error());
    *ret_pool = outside(*pool);
    if (const std::string &warning = (*pool)->warning(); !warning.empty())
        (void)fail(0, "open pool: " + warning);
    return 0;
}

}  // namespace
}  // namespace maru::capi

using namespace maru;
using namespace maru::capi;

extern "C" {

int maru_pool_open(maru_client *client, const struct maru_pool_options *options,
                   maru_pool **ret_pool) {
    return abi_guard([&]() -> int { return open_pool(client, options, ret_pool); });
}

int maru_pool_close(maru_pool *pool, uint32_t mode) {
    return abi_guard([&]() -> int {
        if (int bad = check(pool, "pool"))
            return bad;
        if (mode > MARU_CLOSE_FORCED)
            return fail(EINVAL, "mode: must be MARU_CLOSE_DRAINED or MARU_CLOSE_FORCED");
        const auto how =
            mode == MARU_CLOSE_FORCED ? client::Pool::Close::Forced : client::Pool::Close::Drained;
        return static_cast<int>(
            report(client::Pool::close(*inside(pool), how, session_of(pool).call_deadline())));
    });
}

int maru_pool_info(maru_pool *pool, struct maru_pool_info *info) {
    return abi_guard([&]() -> int {
        if (int bad = check(pool, "pool"))
            return bad;
        if (!info)
            return fail(EINVAL, "info: must not be NULL");
        const client::Pool::Info known = inside(pool)->info();
        struct maru_pool_info out {};
        out.id = inside(pool)->id();
        out.capacity_bytes = known.usage.capacity_bytes;
        out.reserved_bytes = known.usage.reserved_bytes;
        out.allocated_bytes = known.usage.allocated_bytes;
        out.ready_bytes = known.usage.ready_bytes;
        out.ready_allocated_bytes = known.usage.ready_allocated_bytes;
        out.quarantined_bytes = known.usage.quarantined_bytes;
        out.pinned_bytes = known.usage.pinned_bytes;
        out.retiring_bytes = known.usage.retiring_bytes;
        out.populated_bytes = known.usage.populated_bytes;
        out.swapped_bytes = known.swapped_bytes;
        out.page_bytes = inside(pool)->allocator().page_bytes();
        out.backing_page_bytes = known.backing_page_bytes;
        out.numa_node = known.numa_node;
        out.populating = known.populating;
        out.populate_result = known.populate_result;
        out.segment_count = known.segment_count;
        out.scope = inside(pool)->shared() ? MARU_SCOPE_HOST : MARU_SCOPE_WORKER;
        return write_info(out, info, "info", offsetof(struct maru_pool_info, capacity_bytes));
    });
}

int maru_pool_wait_populated(maru_pool *pool, uint32_t timeout_ms) {
    return abi_guard([&]() -> int {
        if (int bad = check(pool, "pool"))
            return bad;
        return static_cast<int>(report(inside(pool)->wait_populated(timeout_ms)));
    });
}

int maru_reserve(maru_pool *pool, uint64_t length, size_t count,
                 maru_reservation *ret_reservations) {
    return abi_guard([&]() -> int {
        if (int bad = check(pool, "pool"))
            return bad;
        if (int bad = check_array(ret_reservations, count, "ret_reservations"))
            return bad;
        if (count == 0)
            return 0;
        thread_local std::vector<pool::PageRun> runs;
        runs.resize(count);
        client::Pool &inner = *inside(pool);
        if (auto outcome = inner.reserve(length, runs); outcome.value != 0)
            return static_cast<int>(report(outcome));
        for (size_t i = 0; i < count; ++i)
            ret_reservations[i] = {inner.place(runs[i].offset), runs[i].length, runs[i].offset,
                                   runs[i].generation};
        return 0;
    });
}

int maru_abort(maru_pool *pool, const maru_reservation *reservations, size_t count) {
    return abi_guard([&]() -> int {
        if (int bad = check(pool, "pool"))
            return bad;
        if (int bad = check_array(reservations, count, "reservations"))
            return bad;
        int result = 0;
        for (size_t i = 0; i < count; ++i) {
            const pool::PageRun run{reservations[i].offset, reservations[i].length,
                                    reservations[i].generation};
            if (inside(pool)->allocator().apply(pool::AllocationEvent::Abort, run) !=
                pool::RunStatus::Ok)
                result = fail(
                    ENOENT, "reservations[" + std::to_string(i) + "]: is not reserved (any more)");
        }
        return result;
    });
}

}  // extern "C"
