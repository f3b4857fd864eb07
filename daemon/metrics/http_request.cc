#include "daemon/metrics/http_request.h"

#include <algorithm>

namespace maru::metrics {
namespace {

constexpr std::string_view kBlank = " \t";

std::string_view trim(std::string_view text) {
    size_t begin = text.find_first_not_of(kBlank);
    if (begin == text.npos)
        return {};
    return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

bool same(std::string_view a, std::string_view b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](char x, char y) { return lower(x) == lower(y); });
}

bool is_token(std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
        return (lower(c) >= 'a' && lower(c) <= 'z') || (c >= '0' && c <= '9') ||
               std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
    });
}

// What stands before `end`, which is removed with it; the rest if there is none.
std::string_view take(std::string_view &text, char end) {
    size_t at = std::min(text.find(end), text.size());
    std::string_view taken = text.substr(0, at);
    text.remove_prefix(std::min(at + 1, text.size()));
    return taken;
}

// Without its "\n" and the "\r" before it.
std::string_view take_line(std::string_view &text) {
    std::string_view line = take(text, '\n');
    if (!line.empty() && line.back() == '\r')
        line.remove_suffix(1);
    return line;
}

HttpRequest answer(int status, std::string_view why) {
    HttpRequest request;
    request.complete = true;
    request.status = status;
    request.why = why;
    return request;
}

// Thousandths; what is not a weight is 0, so that it is not chosen.
int weight(std::string_view text) {
    if (text.empty() || text.size() > 5 || (text[0] != '0' && text[0] != '1') ||
        (text.size() > 1 && text[1] != '.'))
        return 0;
    int value = (text[0] - '0') * 1000, unit = 100;
    for (char c : text.substr(std::min<size_t>(2, text.size()))) {
        if (c < '0' || c > '9')
            return 0;
        value += (c - '0') * unit;
        unit /= 10;
    }
    return value > 1000 ? 0 : value;
}

bool is_our_page(std::string_view target) {
    // The absolute form, which a proxy would send.
    if (target.substr(0, 7) == "http://") {
        target.remove_prefix(7);
        target.remove_prefix(std::min(target.find('/'), target.size()));
    }
    return target.substr(0, target.find('?')) == "/metrics";
}

const char *reason(int status) {
    switch (status) {
        case 200:
            return "OK";
        case 404:
            return "Not Found";
        case 405:
            return "Method Not Allowed";
        case 431:
            return "Request Header Fields Too Large";
        case 501:
            return "Not Implemented";
        case 505:
            return "HTTP Version Not Supported";
        default:
            return "Bad Request";
    }
}

}  // namespace

Format preferred_format(std::string_view accept) {
    int open = -1, text = -1, wild = -1;
    while (!accept.empty()) {
        std::string_view range = take(accept, ',');
        std::string_view type = trim(take(range, ';'));
        int q = 1000;
        while (!range.empty()) {
            std::string_view parameter = trim(take(range, ';'));
            if (parameter.size() > 2 && same(parameter.substr(0, 2), "q="))
                q = weight(parameter.substr(2));
        }
        if (same(type, "application/openmetrics-text"))
            open = std::max(open, q);
        else if (same(type, "text/plain"))
            text = std::max(text, q);
        else if (same(type, "text/*") || same(type, "*/*"))
            wild = std::max(wild, q);
    }
    return open > 0 && open >= (text >= 0 ? text : wild) ? Format::OpenMetrics : Format::Text;
}

HttpRequest parse_http_request(std::string_view bytes) {
    // An end of the head, in either spelling. A line before the first is tolerated by nobody here.
    size_t end = bytes.find("\n\r\n"), plain = bytes.find("\n\n");
    end = std::min(end, plain);
    if (end == bytes.npos) {
        if (bytes.size() >= kMaxRequestBytes)
            return answer(431, "a request has at most 8192 bytes");
        // Whoever does not speak HTTP need not be waited for.
        size_t method = std::min(bytes.find_first_of(" \r\n"), bytes.size());
        if (method > 16 || (method > 0 && !is_token(bytes.substr(0, method))) ||
            (method == 0 && !bytes.empty()))
            return answer(400, "this is not HTTP");
        return {};
    }
    if (end >= kMaxRequestBytes)
        return answer(431, "a request has at most 8192 bytes");
    std::string_view head = bytes.substr(0, end + 1);
    if (head.find('\0') != head.npos)
        return answer(400, "the head contains a NUL");

    std::string_view line = take_line(head);
    std::string_view method = take(line, ' '), target = take(line, ' '), version = line;
    if (!is_token(method) || target.empty() || version.substr(0, 5) != "HTTP/")
        return answer(400, "the first line must be: GET /metrics HTTP/1.1");
    if (version != "HTTP/1.1" && version != "HTTP/1.0")
        return answer(505, "only HTTP/1.0 and HTTP/1.1 are spoken here");

    HttpRequest request;
    int hosts = 0;
    bool body = false;
    while (!head.empty()) {
        std::string_view value = take_line(head);
        size_t colon = value.find(':');
        if (colon == value.npos || !is_token(value.substr(0, colon)))
            return answer(400, "a header line must be: Name: value");
        std::string_view name = value.substr(0, colon);
        value = trim(value.substr(colon + 1));
        if (same(name, "host"))
            ++hosts;
        else if (same(name, "accept"))
            request.format = preferred_format(value);
        else if (same(name, "transfer-encoding") || (same(name, "content-length") && value != "0"))
            body = true;
    }
    if (hosts > 1 || (hosts == 0 && version == "HTTP/1.1"))
        return answer(400, "a request names its Host once");
    if (body)
        return answer(400, "a request to this page has no body");
    if (method != "GET" && method != "HEAD")
        return answer(405, "only GET and HEAD are answered");
    if (!is_our_page(target))
        return answer(404, "the only page is /metrics");
    request.complete = true;
    request.status = 200;
    request.head = method == "HEAD";
    return request;
}

std::string http_head(int status, std::string_view type, size_t body_bytes) {
    std::string head = "HTTP/1.1 " + std::to_string(status) + " " + reason(status) +
                       "\r\nContent-Type: " + std::string(type) +
                       "\r\nContent-Length: " + std::to_string(body_bytes);
    if (status == 405)
        head += "\r\nAllow: GET, HEAD";
    return head + "\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n";
}

}  // namespace maru::metrics
