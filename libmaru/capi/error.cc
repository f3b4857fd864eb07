#include "maru/error.h"

#include <array>
#include <cerrno>
#include <cstring>

#include "libmaru/capi/guard.h"

namespace {

// A fixed buffer: recording an error must not fail, and its text must not move under its reader.
thread_local std::array<char, 1024> t_message{};

struct Name {
    int code;
    const char *text;
};
constexpr Name kNames[] = {
    {0, "OK"},
    {E2BIG, "E2BIG"},
    {EACCES, "EACCES"},
    {EAGAIN, "EAGAIN"},
    {EBADMSG, "EBADMSG"},
    {EBUSY, "EBUSY"},
    {ECONNREFUSED, "ECONNREFUSED"},
    {EDQUOT, "EDQUOT"},
    {EEXIST, "EEXIST"},
    {EINPROGRESS, "EINPROGRESS"},
    {EINVAL, "EINVAL"},
    {EIO, "EIO"},
    {EKEYREVOKED, "EKEYREVOKED"},
    {EMEDIUMTYPE, "EMEDIUMTYPE"},
    {EMFILE, "EMFILE"},
    {EMSGSIZE, "EMSGSIZE"},
    {ENODEV, "ENODEV"},
    {ENOENT, "ENOENT"},
    {ENOMEM, "ENOMEM"},
    {ENOSPC, "ENOSPC"},
    {ENOTCONN, "ENOTCONN"},
    {ENOTUNIQ, "ENOTUNIQ"},
    {EOPNOTSUPP, "EOPNOTSUPP"},
    {EOWNERDEAD, "EOWNERDEAD"},
    {EPROTO, "EPROTO"},
    {EPROTONOSUPPORT, "EPROTONOSUPPORT"},
    {ESTALE, "ESTALE"},
    {ETIMEDOUT, "ETIMEDOUT"},
};

}  // namespace

namespace maru::capi {

int fail(int code, std::string_view message) noexcept {
    const size_t length = std::min(message.size(), t_message.size() - 1);
    std::memcpy(t_message.data(), message.data(), length);
    t_message[length] = '\0';
    return -code;
}

}  // namespace maru::capi

extern "C" {

const char *maru_last_error(void) { return t_message.data(); }

const char *maru_error_name(int result) {
    for (const Name &name : kNames)
        if (name.code == -result)
            return name.text;
    return "?";
}

const char *maru_version(void) { return MARU_VERSION_TEXT; }

}  // extern "C"
