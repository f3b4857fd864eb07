// Worker, part 4: what an answer changes.
#include "tests/sim/clients.h"
#include "tests/sim/truth.h"

namespace maru::sim {

using wire::Status;

namespace {
template <typename T>
size_t kind() {
    static const size_t index = wire::RequestBody(T{}).index();
    return index;
}
}  // namespace

void Worker::answered(const Asked &asked, const wire::Reply &reply, std::span<Memfd *const> fds) {
    if (asked.kind == kind<wire::OpenSessionRequest>() || asked.kind == kind<wire::AttachRequest>())
        return answered_session(asked, reply);
    const auto *only = std::get_if<wire::StatusOnly>(&reply.body);
    const Status status = only ? only->status : Status::Ok;
    if (!liar() &&
        (status == Status::InvalidArgument || status == Status::Denied ||
         status == Status::Conflict || status == Status::TooLarge) &&
        asked.kind != kind<wire::ClosePoolRequest>() &&
        asked.kind != kind<wire::SegmentMappedRequest>())
        violated(Rule::HonestServed, "a correct request (kind %zu) was refused: %s, %.200s",
                 asked.kind, wire::status_name(status), std::string(only->message).c_str());

    if (asked.kind == kind<wire::RegisterNamespaceRequest>()) {
        if (const auto *answer = std::get_if<wire::NamespaceReply>(&reply.body))
            names_[static_cast<uint32_t>(asked.about[0])] = answer->namespace_id;
    } else if (asked.kind == kind<wire::DescribeRequest>()) {
        if (status == Status::Ok)
            described_.insert(static_cast<uint32_t>(asked.about[0]));
    } else if (asked.kind == kind<wire::AttachDoneRequest>()) {
        if (status == Status::Ok)
            phase_ = Phase::Live;
    } else if (asked.kind == kind<wire::CloseSessionRequest>()) {
        if (status == Status::Ok)
            return forget_session();
        phase_ = Phase::Live;
        again_ = world_.now() + 20'000'000;
    } else if (asked.kind == kind<wire::CommitRequest>()) {
        answered_commit(asked, reply);
    } else if (asked.kind == kind<wire::ResolveRequest>()) {
        answered_resolve(asked, reply);
    } else if (asked.kind == kind<wire::AcquireRequest>()) {
        answered_acquire(asked, reply);
    } else if (asked.kind == kind<wire::ReleaseRequest>() ||
               asked.kind == kind<wire::RetireRequest>() ||
               asked.kind == kind<wire::ReclaimAckRequest>() ||
               asked.kind == kind<wire::RepublishRequest>()) {
        answered_items(asked, reply);
    } else if (asked.kind == kind<wire::OpenPoolRequest>() ||
               asked.kind == kind<wire::GrantSegmentRequest>() ||
               asked.kind == kind<wire::SegmentMappedRequest>() ||
               asked.kind == kind<wire::ClosePoolRequest>()) {
        answered_pool(asked, reply, fds);
    }
    if (link_ && (status == Status::Fenced || status == Status::Protocol))
        cut();
}

void Worker::answered_commit(const Asked &asked, const wire::Reply &reply) {
    const auto *answer = std::get_if<wire::CommitReply>(&reply.body);
    for (size_t i = 0; i < asked.about.size(); ++i) {
        Object &object = objects_[asked.about[i]];
        if (object.state != Object::Committing)
            continue;
        if (!answer) {
            // Nothing ran. A first try may be made again with a new id, a retry stays in doubt.
            if (object.retried) {
                object.state = Object::Unknown;
            } else {
                open_ops_.erase(object.op);
                object.state = Object::Written;
            }
            continue;
        }
        open_ops_.erase(object.op);
        const wire::CommitResult &result = answer->results[i];
        if (result.status == Status::Ok) {
            object.state = Object::Ready;
            object.replica = result.replica;
        } else {
            free_object(asked.about[i]);
        }
    }
}

void Worker::answered_resolve(const Asked &asked, const wire::Reply &reply) {
    Object &object = objects_[asked.about[0]];
    const auto *answer = std::get_if<wire::ResolveReply>(&reply.body);
    if (!answer || answer->results.empty() || object.state != Object::Unknown)
        return;
    const wire::CommitResult &result = answer->results[0];
    if (result.status == Status::Unknown)
        return;
    open_ops_.erase(object.op);
    if (result.status == Status::Committed) {
        object.state = Object::Ready;
        object.replica = result.replica;
    } else if (result.status == Status::Absent && world_.random().coin()) {
        object.state = Object::Written;  // its bytes are still good: commit it anew
        object.old_life = false;
    } else {
        free_object(asked.about[0]);
    }
}

void Worker::answered_acquire(const Asked &asked, const wire::Reply &reply) {
    const auto *answer = std::get_if<wire::AcquireReply>(&reply.body);
    if (!answer || liar())
        return;
    const Settings &settings = world_.settings();
    const uint32_t parts = settings.shards * settings.parts;
    for (size_t i = 0; i < answer->results.size(); ++i) {
        const wire::AcquireResult &result = answer->results[i];
        if (result.status != Status::Ok)
            continue;
        const size_t index = object_at(result.pool, result.offset);
        if (index == SIZE_MAX)
            violated(Rule::AcquireProtects,
                     "acquire gives pages that this worker has not allocated");
        const ObjectName name{static_cast<uint32_t>(asked.about[0]),
                              static_cast<uint32_t>(asked.about[1 + i / parts]),
                              static_cast<uint32_t>(i % parts) / settings.parts,
                              static_cast<uint32_t>(i % parts) % settings.parts};
        uint32_t page;
        Memfd *file = file_of(objects_[index], &page);
        Reading reading;
        reading.object = index;
        reading.name = {result.replica, result.generation};
        reading.number = world_.truth().begin_read(*process_, *file, page, objects_[index].pages,
                                                   {name, result.generation, true});
        readings_.push_back(reading);
    }
}

void Worker::answered_items(const Asked &asked, const wire::Reply &reply) {
    const auto *answer = std::get_if<wire::ItemStatusReply>(&reply.body);
    if (asked.kind == kind<wire::ReleaseRequest>()) {
        std::erase_if(readings_, [&](const Reading &reading) {
            return std::find(asked.about.begin(), asked.about.end(), reading.number) !=
                   asked.about.end();
        });
        return;
    }
    for (size_t i = 0; i < asked.about.size(); ++i) {
        if (asked.about[i] >= objects_.size())
            continue;
        Object &object = objects_[asked.about[i]];
        const Status status = answer ? answer->statuses[i] : Status::Again;
        if (asked.kind == kind<wire::RetireRequest>()) {
            if (object.state != Object::Retiring)
                continue;  // the event came first
            if (status == Status::Ok)
                object.state = Object::Reclaimable;
            else if (!answer)
                object.retire_asked = false;
            else if (status != Status::Pending && !liar())
                violated(Rule::HonestServed, "a correct retire was refused: %s",
                         wire::status_name(status));
        } else if (asked.kind == kind<wire::ReclaimAckRequest>()) {
            if (object.state != Object::Acking)
                continue;
            if (!answer)
                object.state = Object::Reclaimable;
            else if (status == Status::Ok || status == Status::NotFound ||
                     status == Status::StaleGeneration)
                free_object(asked.about[i]);
            else if (!liar())
                violated(Rule::HonestServed, "a correct reclaim was refused: %s",
                         wire::status_name(status));
        } else if (answer && status == Status::Ok) {  // republished under a new id
            const wire::Id id = answer->replicas[i];
            for (Reading &reading : readings_)
                if (reading.object == asked.about[i])
                    reading.name.replica = id;
            object.replica = id;
            if (object.state == Object::Retiring)
                object.retire_asked = true;  // Reclaim follows
        }
    }
}

void Worker::answered_pool(const Asked &asked, const wire::Reply &reply,
                           std::span<Memfd *const> fds) {
    Pool &pool = pools_[asked.about[0]];
    const auto *only = std::get_if<wire::StatusOnly>(&reply.body);
    if (const auto *opened = std::get_if<wire::PoolReply>(&reply.body)) {
        const Settings &settings = world_.settings();
        pool.state = Pool::Open;
        pool.id = opened->pool;
        pool.capacity = opened->capacity_bytes;
        pool.segment_bytes = opened->segment_bytes;
        pool.page_bytes = settings.page_bytes;
        pool.next_generation = opened->first_generation;
        pool.segments.assign(opened->segment_count, Segment{});
        pool.used.assign(opened->capacity_bytes / settings.page_bytes, false);
    } else if (asked.kind == kind<wire::OpenPoolRequest>()) {
        pool.again = world_.now() + 30'000'000;
    } else if (asked.kind == kind<wire::GrantSegmentRequest>()) {
        const auto index = static_cast<uint32_t>(asked.about[1]);
        if (!fds.empty())
            map_segment(asked.about[0], index, fds[0]);
        else if (pool.segments[index].state == Segment::Asked)
            pool.segments[index].state = Segment::None;
    } else if (asked.kind == kind<wire::SegmentMappedRequest>()) {
        Segment &segment = pool.segments[asked.about[1]];
        if (segment.state == Segment::Sealing && only && only->status == Status::InvalidArgument) {
            world_.unmap(process_, segment.file);  // marud was restarted and makes it anew
            segment = Segment{};
        } else if (segment.state == Segment::Sealing) {
            segment.state = only && only->status == Status::Ok ? Segment::Usable : Segment::Mapped;
        }
    } else {
        const auto *closed = std::get_if<wire::ClosePoolReply>(&reply.body);
        const Status status = closed ? closed->status : only ? only->status : Status::Internal;
        pool.again = world_.now() + world_.random().below(30'000'000);
        if (status == Status::NotFound ||
            (pool.state == Pool::Finishing && status == Status::Denied)) {
            drop_pool(asked.about[0]);
            pool.state = Pool::Finished;
        } else if (pool.state == Pool::Finishing) {
            pool.state = status == Status::Ok ? Pool::Finished : Pool::Drained;
        } else if (pool.state == Pool::Draining) {
            if (status == Status::Ok) {
                drop_pool(asked.about[0]);
                pool.state = Pool::Drained;
            } else if (!pool.forced) {
                pool.state = Pool::Open;
            }
        }
    }
}

}  // namespace maru::sim
