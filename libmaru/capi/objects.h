// What the blocking and the asynchronous calls on objects share.
#pragma once

#include <span>

#include "libmaru/capi/handles.h"
#include "libmaru/client/batch_ops.h"

namespace maru::capi {

// Of one call: keeps indices in 32 bits with room to spare.
inline constexpr size_t kMaxObjects = size_t{1} << 28;

int check_worker(const client::Session &session);
int check_commit(maru_namespace *ns, maru_pool *pool, const maru_key *keys,
                 const maru_reservation *reservations, size_t count, int *ret_results);
// Valid until this thread's next call.
std::span<const pool::PageRun> runs_of(const maru_reservation *reservations, size_t count);
// Takes the runs, all or none; nullptr with the message (-EINVAL). Under the session's lock.
client::CommitOp *prepare_commit(maru_namespace *ns, maru_pool *pool, const wire::Key *keys,
                                 std::span<const pool::PageRun> runs, int *ret_results);

// Ends leases; NULL entries are skipped. -ENOENT for those that were released before.
int release(maru_lease *const *leases, size_t count);
// Do the queue and the namespace belong to one client, and has the queue room? Then it is taken: what is
// not submitted is withdrawn. Under the session's lock.
int admit(maru_queue *queue, maru_namespace *ns);

}  // namespace maru::capi
