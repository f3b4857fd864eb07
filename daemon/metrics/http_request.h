// HTTP, as much as a scraper needs: one GET or HEAD of one page, and a closed connection.
//
// Pure: bytes in, a decision out. Strict where leniency could be misread (a folded header, a body,
// a missing Host), and bounded: a request is at most kMaxRequestBytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "daemon/metrics/registry.h"

namespace maru::metrics {

inline constexpr size_t kMaxRequestBytes = 8192;

struct HttpRequest {
    bool complete = false;  // false: more bytes are needed
    int status = 0;         // 200, or the error to answer with
    std::string_view why;   // of an error: one line for people
    bool head = false;      // HEAD: the same answer without its body
    Format format = Format::Text;
};

// What has arrived so far. Once complete, nothing that follows matters.
HttpRequest parse_http_request(std::string_view bytes);

// The format that an Accept header prefers of the two there are; the older one if it says nothing.
Format preferred_format(std::string_view accept);

// Status line and headers up to the empty line.
std::string http_head(int status, std::string_view type, size_t body_bytes);

}  // namespace maru::metrics
