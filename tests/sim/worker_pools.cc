// Worker, part 2: its pools, from the first segment to the last page, and its leave.
#include "tests/sim/clients.h"
#include "tests/sim/truth.h"

namespace maru::sim {

// ---- pools -------------------------------------------------------------------------------------

void Worker::map_segment(size_t pool, uint32_t index, Memfd *file) {
    Segment &segment = pools_[pool].segments[index];
    segment.file = file;
    if (segment.state != Segment::Asked)
        return;
    // Only over a connection that marud has ended may it be sealed already.
    const bool mapped = world_.map(process_, file);
    if (!mapped && link_ && link_->server_open && !liar())
        violated(Rule::HonestServed, "the segment %u granted to this worker cannot be mapped",
                 index);
    segment.state = mapped ? Segment::Mapped : Segment::Gone;
}

bool Worker::step_pools() {
    Random &random = world_.random();
    const Settings &settings = world_.settings();
    for (size_t p = 0; p < pools_.size(); ++p) {
        Pool &pool = pools_[p];
        if (pool.state == Pool::Opening && pool.id == 0 && !asking<wire::OpenPoolRequest>() &&
            !leaving_ && world_.now() >= pool.again) {
            wire::OpenPoolRequest open;
            open.capacity_bytes = static_cast<uint64_t>(settings.pool_pages) * settings.page_bytes;
            open.page_bytes = settings.page_bytes;
            open.request_key = pool.request_key;
            ask(open, {p});
            return true;
        }
        if (pool.state != Pool::Open || leaving_)
            continue;
        for (uint32_t s = 0; s < pool.segments.size(); ++s) {
            Segment &segment = pool.segments[s];
            if (segment.state == Segment::None && random.coin()) {
                segment.state = Segment::Asked;
                ask(wire::GrantSegmentRequest{pool.id, s}, {p, s});
                return true;
            }
            if (segment.state == Segment::Mapped && random.coin()) {
                segment.state = Segment::Sealing;
                ask(wire::SegmentMappedRequest{pool.id, s}, {p, s});
                return true;
            }
        }
    }
    size_t open = 0;
    for (const Pool &pool : pools_)
        open += pool.state != Pool::Finished;
    if (leaving_ || open >= 2 || (open == 1 && !random.one_in(40)))
        return false;
    Pool pool;
    pool.request_key = random.next() | 1;
    for (Pool &old : pools_)
        if (old.state == Pool::Finished) {
            old = pool;
            return true;
        }
    pools_.push_back(pool);
    return true;
}

bool Worker::quiet(size_t index) const {
    for (const Segment &segment : pools_[index].segments)
        if (segment.state == Segment::Asked || segment.state == Segment::Sealing)
            return false;
    for (const Object &object : objects_)
        if (object.state != Object::Free && object.pool == index && object.state != Object::Ready &&
            object.state != Object::Writing && object.state != Object::Written)
            return false;
    return true;
}

// Its segments are unmapped and its objects forgotten; what marud holds of it goes by Finish.
void Worker::drop_pool(size_t index) {
    Pool &pool = pools_[index];
    for (size_t i = 0; i < objects_.size(); ++i)
        if (objects_[i].state != Object::Free && objects_[i].pool == index)
            free_object(i);
    for (Segment &segment : pool.segments) {
        if (segment.file)
            world_.unmap(process_, segment.file);
        segment.file = nullptr;
        segment.state = Segment::Gone;
    }
}

bool Worker::step_close() {
    Random &random = world_.random();
    bool all_finished = true;
    for (size_t p = 0; p < pools_.size(); ++p) {
        Pool &pool = pools_[p];
        if (pool.state == Pool::Finished)
            continue;
        if (pool.state == Pool::Opening && leaving_ && !asking<wire::OpenPoolRequest>() &&
            pool.again > 0) {
            pool.state = Pool::Finished;  // it was refused, so there is none
            continue;
        }
        all_finished = false;
        if (asking<wire::ClosePoolRequest>() || world_.now() < pool.again)
            continue;
        if (pool.state == Pool::Opening && leaving_ && !asking<wire::OpenPoolRequest>()) {
            wire::OpenPoolRequest open;  // it may exist: find out
            open.capacity_bytes =
                static_cast<uint64_t>(world_.settings().pool_pages) * world_.settings().page_bytes;
            open.page_bytes = world_.settings().page_bytes;
            open.request_key = pool.request_key;
            ask(open, {p});
            return true;
        }
        if (pool.state == Pool::Open && (leaving_ || random.one_in(300)) && quiet(p)) {
            pool.state = Pool::Draining;
            pool.forced = random.coin();
            for (size_t i = 0; i < objects_.size(); ++i)
                if (objects_[i].pool == p &&
                    (objects_[i].state == Object::Writing || objects_[i].state == Object::Written))
                    free_object(i);
        }
        if (pool.state == Pool::Draining) {
            ask(wire::ClosePoolRequest{pool.id, pool.forced ? wire::ClosePhase::Force
                                                            : wire::ClosePhase::Drain},
                {p});
            return true;
        }
        if (pool.state == Pool::Drained) {
            pool.state = Pool::Finishing;
            ask(wire::ClosePoolRequest{pool.id, wire::ClosePhase::Finish}, {p});
            return true;
        }
    }
    if (leaving_ && all_finished && readings_.empty() && asked_.empty() && world_.now() >= again_) {
        phase_ = Phase::Closing;
        ask(wire::CloseSessionRequest{});
        return true;
    }
    return false;
}

}  // namespace maru::sim
