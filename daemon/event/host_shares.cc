// Host: whose turn it is. A uid that has had more than its share of the loop comes after the others;
// and clients that were active a moment ago are asked without sleeping in between.

#include <algorithm>
#include <cerrno>

#include "daemon/event/host.h"
#include "libmaru/base/clock.h"

namespace maru {

// ---- shares ------------------------------------------------------------------------------------

// The share of the uid if it is over it, or is late still; else null. Nobody is late for himself:
// with one uid there are no others to be kept waiting.
Host::Share *Host::over_share(uint32_t uid) {
    if (shares_.size() == 1 && !shares_.begin()->second.late)
        return nullptr;
    auto found = shares_.find(uid);
    if (found == shares_.end())
        return nullptr;
    Share &share = found->second;
    if (shares_.size() == 1) {
        if (share.late)
            set_late(uid, false);
        return nullptr;
    }
    share.served = true;
    if (loop_cpu_ > share.since) {
        share.used = std::max<TimeNs>(share.used - (loop_cpu_ - share.since) / kShareOf, 0);
        share.since = loop_cpu_;
    }
    if (share.late && share.used < kShare / 2)
        set_late(uid, false);
    return share.late || share.used > kShare ? &share : nullptr;
}

// The system call is spared where there is nobody to be fair to, and where the last client's time has
// just ended.
void Host::begin_charge() {
    if (shares_.size() <= 1)
        loop_cpu_ = 0;
    else if (charge_anew_ || loop_cpu_ == 0)
        loop_cpu_ = thread_cpu_ns();
    charge_anew_ = false;
}

void Host::charge_share(uint32_t uid) {
    // Without a beginning: the second user has come since.
    auto found = loop_cpu_ == 0 ? shares_.end() : shares_.find(uid);
    if (found == shares_.end()) {
        charge_anew_ = true;
        return;
    }
    const TimeNs now = thread_cpu_ns();
    found->second.used = std::min(found->second.used + now - loop_cpu_, kShareMost);
    loop_cpu_ = now;
}

void Host::set_late(uint32_t uid, bool late) {
    shares_[uid].late = late;
    const auto rank = late ? ClientPoll::Rank::Late : ClientPoll::Rank::Common;
    for (auto &[id, client] : connections_) {
        if (client->peer.uid != uid || client->rank == rank)
            continue;
        // Without memory for it the client stays where it was, which harms nobody for long.
        if (poll_.move(client->socket.get(), client->interest, *client, rank))
            client->rank = rank;
    }
}

// However busy the others are, nobody waits for ever.
void Host::forgive() {
    for (auto &[uid, share] : shares_) {
        if (share.late && !share.served) {
            share.used = 0;
            set_late(uid, false);
        }
        share.served = false;
    }
}

// ---- spinning ----------------------------------------------------------------------------------

void Host::spin() {
    if (options_.spin_us == 0 || active_.empty())
        return;
    const int64_t full = static_cast<int64_t>(options_.spin_us) * 1000;
    if (spin_ns_ == 0 || spin_ns_ > full)
        spin_ns_ = full;
    // Others wait while we poll these few, so the whole of it is bounded, too.
    constexpr int64_t kLongest = 2'000'000;
    const int64_t begin = boottime_ns();
    int64_t last = begin, now = begin;
    bool found = false;
    do {
        bool found_now = false;
        // The clock costs as much as a socket that has nothing.
        for (int i = 0; i < kAsksPerClock && !found_now; ++i)
            poll_active(found_now);
        now = boottime_ns();
        if (found_now) {
            tally_.turns.observe(now - now_);
            found = true;
            last = now;
        }
    } while (now - last < spin_ns_ && now - begin < kLongest);
    polled_.clear();
    charge_anew_ = true;
    // Nothing came: wait for it asleep next time, and try for less long; something came: it pays.
    spin_ns_ = found ? std::min(full, spin_ns_ * 2) : std::max(full / 8, spin_ns_ / 2);
    std::erase_if(active_, [&](ConnectionId id) {
        ClientSocket *client = find(id);
        return !client || now - client->last_packet > 4 * full;
    });
}

// Asks each once, and stops at the first that has something: its turn may have changed all of them.
void Host::poll_active(bool &ret_found) {
    if (polled_.empty())
        for (ConnectionId id : active_) {
            ClientSocket *client = find(id);
            if (client && client->stage == ClientSocket::Stage::Open && client->queue.empty() &&
                !over_share(client->peer.uid))
                polled_.push_back(client);
        }
    for (ClientSocket *client : polled_) {
        auto packet = wire::receive_packet(client->socket.get(), frame_);
        if (!packet && packet.error().code == EAGAIN)
            continue;
        const uint32_t uid = client->peer.uid;
        polled_.clear();
        ret_found = true;
        charge_anew_ = true;
        begin_charge();
        {
            Turn turn(*this);
            // Behind the others, who are as likely to say the next thing.
            std::erase(active_, client->id);
            read_packets(*client, std::move(packet));
        }
        charge_share(uid);
        return;
    }
}

}  // namespace maru
