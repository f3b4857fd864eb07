#include "libmaru/client/status.h"

#include <cerrno>

namespace maru::client {

int errno_of(wire::Status status) {
    using wire::Status;
    switch (status) {
        case Status::Ok:
        case Status::Committed:
            return 0;
        case Status::AlreadyPresent:
            return EEXIST;
        case Status::Pending:
        case Status::Unknown:
            return EINPROGRESS;
        case Status::Miss:
        case Status::NotFound:
        case Status::Absent:
            return ENOENT;
        case Status::NoSpace:
            return ENOSPC;
        case Status::NoMemory:
            return ENOMEM;
        case Status::Quota:
            return EDQUOT;
        case Status::Unavailable:
            return ENODEV;
        case Status::Unsupported:
            return EOPNOTSUPP;
        case Status::InvalidArgument:
            return EINVAL;
        case Status::Denied:
            return EACCES;
        case Status::Busy:
            return EBUSY;
        case Status::Conflict:
            return ENOTUNIQ;
        case Status::StaleGeneration:
        case Status::StaleEpoch:
            return ESTALE;
        case Status::Again:
            return EAGAIN;
        case Status::Protocol:
            return EPROTO;
        case Status::TooLarge:
            return EMSGSIZE;
        case Status::VersionMismatch:
            return EPROTONOSUPPORT;
        case Status::Incompatible:
            return EMEDIUMTYPE;
        case Status::FdLimit:
            return EMFILE;
        case Status::Fenced:
            return EKEYREVOKED;
        case Status::Internal:
            return EIO;
    }
    return EPROTO;
}

}  // namespace maru::client
