#include "maru/key.h"

#include "libmaru/capi/handles.h"
#include "libmaru/digest/prefix_digest.h"

using namespace maru;
using namespace maru::capi;

extern "C" {

int64_t maru_prefix_digests(const char *namespace_text, const uint32_t *tokens, size_t token_count,
                            uint32_t chunk_tokens, const maru_digest *parent,
                            maru_digest *ret_digests) {
    return abi_guard([&]() -> int64_t {
        if (!namespace_text)
            return fail(EINVAL, "namespace_text: must not be NULL");
        if (chunk_tokens == 0)
            return fail(EINVAL, "chunk_tokens: must be at least 1");
        const size_t chunks = token_count / chunk_tokens;
        if (int bad = check_array(tokens, chunks, "tokens"))
            return bad;
        if (int bad = check_array(ret_digests, chunks, "ret_digests"))
            return bad;
        if (chunks == 0)
            return 0;
        const wire::Digest from =
            parent ? *wire_digests(parent) : digest::prefix_root(namespace_text);
        return static_cast<int64_t>(
            digest::prefix_digests(from, {tokens, token_count}, chunk_tokens,
                                   reinterpret_cast<wire::Digest *>(ret_digests)));
    });
}

int maru_digest_format(const maru_digest *digest, char ret_text[2 * MARU_DIGEST_BYTES + 1]) {
    return abi_guard([&]() -> int {
        if (!digest || !ret_text)
            return fail(EINVAL, digest ? "ret_text: must not be NULL" : "digest: must not be NULL");
        digest::format_digest(*wire_digests(digest), ret_text);
        ret_text[2 * MARU_DIGEST_BYTES] = '\0';
        return 0;
    });
}

int maru_digest_parse(const char *text, maru_digest *ret_digest) {
    return abi_guard([&]() -> int {
        if (!text || !ret_digest)
            return fail(EINVAL, text ? "ret_digest: must not be NULL" : "text: must not be NULL");
        const auto digest = digest::parse_digest(text);
        if (!digest)
            return fail(EINVAL, "text: must be exactly 64 hexadecimal digits");
        std::memcpy(ret_digest->bytes, digest->bytes.data(), sizeof ret_digest->bytes);
        return 0;
    });
}

}  // extern "C"
