/* SPDX-License-Identifier: Apache-2.0 */
/**
 * maru/key.h - the identity of an object
 *
 * An object is (namespace, prefix digest, shard, part). A prefix digest covers every token up to the
 * end of its chunk; it is seedless and the same in every process and on every host:
 *
 *   root      = SHA-256("maru-prefix-v1\0" || u64le(length of namespace text) || namespace text)
 *   digest[0] = SHA-256(root        || u32le(chunk_tokens) || tokens of chunk 0, u32le each)
 *   digest[i] = SHA-256(digest[i-1] || u32le(chunk_tokens) || tokens of chunk i, u32le each)
 *
 * Test vector: namespace text "maru-test", chunk_tokens 4, tokens 0 1 2 3 4 5 6 7:
 *   digest[0] = MARU_TEST_VECTOR_0
 *   digest[1] = MARU_TEST_VECTOR_1
 */
#ifndef MARU_KEY_H
#define MARU_KEY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MARU_DIGEST_BYTES 32

#define MARU_TEST_VECTOR_0 "05aed81c19cbd95a0893c43ac63a324b64846134b0655bcd603f7253127096d5"
#define MARU_TEST_VECTOR_1 "af936c7bbc8a323cdb63809c99e004edde72c67c9e9b3711b61a4a378a289924"

typedef struct maru_digest {
    uint8_t bytes[MARU_DIGEST_BYTES];
} maru_digest;

/** One object inside a namespace. 40 bytes, no padding. */
struct maru_key {
    maru_digest digest;
    uint32_t shard; /* tensor- or pipeline-parallel shard; 0 with one rank */
    uint32_t part;  /* 0: all local layers in one object */
};

/** Which shards and parts make one chunk; a hit needs all. NULL means one object: shard 0, part 0. */
struct maru_manifest {
    size_t size; /* sizeof(struct maru_manifest) */
    uint32_t first_shard;
    uint32_t shard_count; /* 0 means 1 */
    uint32_t first_part;
    uint32_t part_count; /* 0 means 1 */
};

/**
 * maru_prefix_digests() - chained digests of a prompt's full chunks
 * @namespace_text: text of the namespace
 * @tokens:         @token_count token ids
 * @chunk_tokens:   tokens per chunk, at least 1; a partial last chunk gets no digest
 * @parent:         NULL to start at the root; or the digest of the chunk before @tokens[0]
 * @ret_digests:    room for @token_count / @chunk_tokens digests
 *
 * Thread safety: any thread. Blocking: never; about 0.3 ns per token byte with SHA extensions.
 * Return: the number of digests written; -EINVAL.
 * Since: 0.1
 */
int64_t maru_prefix_digests(const char *namespace_text, const uint32_t *tokens, size_t token_count,
                            uint32_t chunk_tokens, const maru_digest *parent,
                            maru_digest *ret_digests);

/**
 * maru_digest_format() - a digest as 64 lower-case hexadecimal digits and a NUL
 * Thread safety: any thread. Blocking: never. Return: 0; -EINVAL.
 * Since: 0.1
 */
int maru_digest_format(const maru_digest *digest, char ret_text[2 * MARU_DIGEST_BYTES + 1]);

/**
 * maru_digest_parse() - the inverse; exactly 64 hexadecimal digits, either case
 * Thread safety: any thread. Blocking: never. Return: 0; -EINVAL.
 * Since: 0.1
 */
int maru_digest_parse(const char *text, maru_digest *ret_digest);

#ifdef __cplusplus
}
#endif
#endif
