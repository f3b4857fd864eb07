// Chained prefix digests, exactly as include/maru/key.h documents them, and their text form.
//
// Seedless: the same in every process and on every host. A digest covers all tokens up to the end of
// its chunk, and the namespace's text through the root, so two namespaces never share one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "libmaru/digest/sha256.h"
#include "libmaru/wire/records.h"

namespace maru::digest {

// The parent of chunk 0.
wire::Digest prefix_root(std::string_view namespace_text);

// Digests of the full chunks of `tokens`, the first one chained to `parent`; a partial last chunk
// gets none. chunk_tokens >= 1; `out` has room for tokens.size() / chunk_tokens. Returns how many.
// Blocks are hashed where the tokens lie: the speed is that of the hash.
size_t prefix_digests(const wire::Digest &parent, std::span<const uint32_t> tokens,
                      uint32_t chunk_tokens, wire::Digest *out,
                      Sha256Compress compress = sha256_compress());

inline constexpr size_t kDigestTextBytes = 2 * sizeof(wire::Digest);

// 64 lower-case hexadecimal digits, no NUL.
void format_digest(const wire::Digest &digest, char *out);
std::string format_digest(const wire::Digest &digest);
// Exactly 64 hexadecimal digits, either case.
std::optional<wire::Digest> parse_digest(std::string_view text);

}  // namespace maru::digest
