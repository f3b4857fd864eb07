#include "libmaru/client/call_op.h"

#include <cerrno>

#include "libmaru/client/status.h"
#include "libmaru/wire/codec.h"

namespace maru::client {

void CallOp::next(wire::RequestBody &body, Part &) {
    to_send_ = false;
    sent_ = true;
    build_(body);
}

bool CallOp::on_reply(const Part &, const wire::ReplyBody &body, std::vector<UniqueFd> &fds,
                      bool fds_lost) {
    const auto *status = std::get_if<wire::StatusOnly>(&body);
    if (status && status->status != wire::Status::Ok) {
        status_ = status->status;
        detail_ = status->detail;
        std::string text(status->message);
        if (text.empty())
            text = std::string("marud answered ") + wire::status_name(status->status);
        fail(errno_of(status->status), text);
        return true;
    }
    if (dropped_)
        return true;
    if (!reply_(body, fds, fds_lost)) {
        status_ = wire::Status::Protocol;
        fail(EPROTO, "marud answered with a message that does not fit the request");
        return false;
    }
    return true;
}

void CallOp::on_detach(int) {
    if (must_settle && sent_)
        return;
    dropped_ = true;
    to_send_ = false;
}

bool accept_ok(const wire::ReplyBody &body, std::vector<UniqueFd> &, bool) {
    return std::holds_alternative<wire::StatusOnly>(body);
}

}  // namespace maru::client
