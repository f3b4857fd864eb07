/*
 * Sizes and offsets of every public struct, and the value of every constant, as callers of 0.1 were
 * compiled with them. A field may be added at the end of a struct that begins with its size; nothing
 * else here may ever change. layout_test.py finds what is missing here.
 */
#include <stddef.h>

#include <maru/maru.h>

#define SAME(name, condition) typedef char name[(condition) ? 1 : -1]
#define OFFSET(type, field, value) \
    SAME(offset_##type##_##field, offsetof(struct type, field) == (value))
#define VALUE(name, value) SAME(value_##name, (name) == (value))
#define SIZE(type, value) SAME(size_##type, sizeof(struct type) == (value))

OFFSET(maru_client_options, size, 0);
OFFSET(maru_client_options, socket_path, 8);
OFFSET(maru_client_options, engine, 16);
OFFSET(maru_client_options, name, 24);
OFFSET(maru_client_options, role, 32);
OFFSET(maru_client_options, timeout_ms, 36);
OFFSET(maru_client_options, connect_ms, 40);
OFFSET(maru_client_options, spin_us, 44);
SIZE(maru_client_options, 48);

OFFSET(maru_client_info, size, 0);
OFFSET(maru_client_info, state, 8);
OFFSET(maru_client_info, epoch, 12);
OFFSET(maru_client_info, session, 16);
OFFSET(maru_client_info, reconnects, 24);
OFFSET(maru_client_info, republished, 32);
OFFSET(maru_client_info, leases, 40);
OFFSET(maru_client_info, unknown_commits, 48);
OFFSET(maru_client_info, uid, 56);
OFFSET(maru_client_info, probe_keys_max, 60);
OFFSET(maru_client_info, server_version, 64);
SIZE(maru_client_info, 96);

OFFSET(maru_schema, size, 0);
OFFSET(maru_schema, object_bytes, 8);
OFFSET(maru_schema, format, 16);
SIZE(maru_schema, 24);

OFFSET(maru_pool_options, size, 0);
OFFSET(maru_pool_options, capacity_bytes, 8);
OFFSET(maru_pool_options, page_bytes, 16);
OFFSET(maru_pool_options, medium, 24);
OFFSET(maru_pool_options, huge_pages, 28);
OFFSET(maru_pool_options, numa, 32);
OFFSET(maru_pool_options, numa_node, 36);
OFFSET(maru_pool_options, wait_populated, 40);
OFFSET(maru_pool_options, populate_margin_mib, 44);
OFFSET(maru_pool_options, scope, 48);
OFFSET(maru_pool_options, reserved_0, 52);
SIZE(maru_pool_options, 56);

OFFSET(maru_pool_info, size, 0);
OFFSET(maru_pool_info, id, 8);
OFFSET(maru_pool_info, capacity_bytes, 16);
OFFSET(maru_pool_info, reserved_bytes, 24);
OFFSET(maru_pool_info, allocated_bytes, 32);
OFFSET(maru_pool_info, ready_bytes, 40);
OFFSET(maru_pool_info, ready_allocated_bytes, 48);
OFFSET(maru_pool_info, quarantined_bytes, 56);
OFFSET(maru_pool_info, pinned_bytes, 64);
OFFSET(maru_pool_info, retiring_bytes, 72);
OFFSET(maru_pool_info, populated_bytes, 80);
OFFSET(maru_pool_info, swapped_bytes, 88);
OFFSET(maru_pool_info, page_bytes, 96);
OFFSET(maru_pool_info, backing_page_bytes, 104);
OFFSET(maru_pool_info, numa_node, 112);
OFFSET(maru_pool_info, populating, 116);
OFFSET(maru_pool_info, populate_result, 120);
OFFSET(maru_pool_info, segment_count, 124);
OFFSET(maru_pool_info, scope, 128);
OFFSET(maru_pool_info, reserved_0, 132);
SIZE(maru_pool_info, 136);

OFFSET(maru_reservation, data, 0);
OFFSET(maru_reservation, length, 8);
OFFSET(maru_reservation, offset, 16);
OFFSET(maru_reservation, generation, 24);
SIZE(maru_reservation, 32);

OFFSET(maru_digest, bytes, 0);
SIZE(maru_digest, 32);
OFFSET(maru_key, digest, 0);
OFFSET(maru_key, shard, 32);
OFFSET(maru_key, part, 36);
SIZE(maru_key, 40);

OFFSET(maru_manifest, size, 0);
OFFSET(maru_manifest, first_shard, 8);
OFFSET(maru_manifest, shard_count, 12);
OFFSET(maru_manifest, first_part, 16);
OFFSET(maru_manifest, part_count, 20);
SIZE(maru_manifest, 24);

OFFSET(maru_paged_memory, size, 0);
OFFSET(maru_paged_memory, layers, 8);
OFFSET(maru_paged_memory, layer_count, 16);
OFFSET(maru_paged_memory, block_bytes, 24);
OFFSET(maru_paged_memory, block_count, 32);
OFFSET(maru_paged_memory, block_stride, 40);
OFFSET(maru_paged_memory, threads, 48);
OFFSET(maru_paged_memory, flags, 52);
SIZE(maru_paged_memory, 56);

OFFSET(maru_completion, user_data, 0);
OFFSET(maru_completion, result, 8);
SIZE(maru_completion, 16);

VALUE(MARU_NO_BLOCK, 4294967295u);
VALUE(MARU_CHECKSUM, 1u);
VALUE(MARU_CHECKSUM_BYTES, 16);
VALUE(MARU_DIGEST_BYTES, 32);
VALUE(MARU_ROLE_WORKER, 0u);
VALUE(MARU_ROLE_SCHEDULER, 1u);
VALUE(MARU_NAMESPACE_MAX, 16384);
VALUE(MARU_STATE_ATTACHED, 0u);
VALUE(MARU_STATE_DISCONNECTED, 1u);
VALUE(MARU_STATE_RESTORING, 2u);
VALUE(MARU_STATE_FENCED, 3u);
VALUE(MARU_MEDIUM_CPU, 0u);
VALUE(MARU_MEDIUM_CXL, 1u);
VALUE(MARU_SCOPE_WORKER, 0u);
VALUE(MARU_SCOPE_HOST, 1u);
VALUE(MARU_HUGE_OFF, 0u);
VALUE(MARU_HUGE_TRY, 1u);
VALUE(MARU_HUGE_REQUIRED, 2u);
VALUE(MARU_NUMA_OFF, 0u);
VALUE(MARU_NUMA_AUTO, 1u);
VALUE(MARU_NUMA_STRICT, 2u);
VALUE(MARU_CLOSE_DRAINED, 0u);
VALUE(MARU_CLOSE_FORCED, 1u);
VALUE(MARU_PREFIX_ONLY, 1u);

int main(void) { return 0; }
