// Restore: from a fresh connection to a session that is whole.
//
// Greets, and either opens the session or attaches it again. In the same life of marud it tells the
// leases held; in a new one it registers every namespace by its text first, so that no number of the
// old life is ever used in the new one, then passes the pools and tells everything published. At the
// end every commit without an answer is resolved. Runs under the session's lock, which is released
// while waiting; a failure leaves all for the next connection to do again.
#pragma once

#include "libmaru/client/session.h"

namespace maru::client {

class Restore {
  public:
    Restore(Session &session, Lock &lock, TimeNs deadline)
        : session_(session), lock_(lock), deadline_(deadline) {}

    using Result = Session::CallResult;
    Result hello();
    Result open_session();  // a first one; waits for a dying holder of the engine
    Result attach();        // hello and everything else
    void after();           // what marud is told once all may be sent

  private:
    Result call(CallOp::Build build, CallOp::Reply reply, std::span<const int> fds = {});
    Result same_life();
    Result new_life(const std::vector<wire::Id> &missing);
    Result register_namespaces();
    Result attach_pools(const std::vector<wire::Id> &missing);
    Result republish();
    Result ask_published();
    Result attach_leases();
    Result attach_done();
    Result resolve();
    Result lost_session(const Result &why);

    Session &session_;
    Lock &lock_;
    const TimeNs deadline_;
    uint32_t old_epoch_ = 0;
};

}  // namespace maru::client
