#include "daemon/event/process_watch.h"

#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/vfs.h>

namespace maru {
namespace {

constexpr unsigned long kPidFsMagic = 0x50494446;  // "PIDF", Linux 6.9

uint64_t pidfs_inode(int pidfd) {
    struct statfs fs = {};
    struct stat info = {};
    if (::fstatfs(pidfd, &fs) < 0 || static_cast<unsigned long>(fs.f_type) != kPidFsMagic ||
        ::fstat(pidfd, &info) < 0)
        return 0;
    return info.st_ino;
}

}  // namespace

ProcessWatch::~ProcessWatch() = default;

ProcessWatch::Process &ProcessWatch::add(UniqueFd pidfd, uint32_t pid, uint64_t start_time) {
    uint64_t identity = pidfs_inode(pidfd.get());
    for (auto &[id, slot] : processes_) {
        // Without an inode a process that cannot be seen has no name: it is never "the same".
        bool same = identity ? slot->identity == identity
                             : slot->identity == 0 && pid != 0 && start_time != 0 &&
                                   slot->pid == pid && slot->start_time == start_time;
        if (same)
            return *slot;
    }
    auto slot = std::make_unique<Slot>();
    slot->owner = this;
    slot->id = next_++;
    slot->pid = pid;
    slot->start_time = start_time;
    slot->identity = identity;
    slot->pidfd = std::move(pidfd);
    watch(*slot);
    unwatched_ += !slot->source;
    Process &process = *slot;
    processes_.emplace(process.id, std::move(slot));
    return process;
}

void ProcessWatch::watch(Slot &slot) {
    sd_event_source *source = nullptr;
    // add_io, not add_child_pidfd: that one is for our own children.
    if (sd_event_add_io(loop_, &source, slot.pidfd.get(), EPOLLIN, dispatch, &slot) < 0)
        return;
    slot.source.reset(source);
    sd_event_source_set_description(source, "pidfd");
}

void ProcessWatch::watch_again() {
    if (unwatched_ == 0)
        return;
    unwatched_ = 0;
    for (auto &[id, slot] : processes_) {
        if (slot->source || slot->ended)
            continue;
        watch(*slot);  // one that has ended meanwhile is readable at once
        unwatched_ += !slot->source;
    }
}

ProcessId64 ProcessWatch::add_ended() {
    // Nothing to watch and nothing to find again: only a number that means nobody.
    return next_++;
}

ProcessWatch::Process *ProcessWatch::find(ProcessId64 id) {
    auto found = processes_.find(id);
    return found == processes_.end() ? nullptr : found->second.get();
}

ProcessWatch::Process *ProcessWatch::find(uint32_t pid, uint64_t start_time) {
    if (pid == 0 || start_time == 0)
        return nullptr;
    for (auto &[id, slot] : processes_)
        if (slot->pid == pid && slot->start_time == start_time)
            return slot.get();
    return nullptr;
}

int ProcessWatch::dispatch(sd_event_source *, int, uint32_t, void *userdata) {
    auto *slot = static_cast<Slot *>(userdata);
    slot->ended = true;
    slot->source.reset();
    slot->owner->on_exit_(slot->id);
    return 0;
}

std::vector<std::pair<uint32_t, uint64_t>> ProcessWatch::sweep(
    const std::function<bool(ProcessId64)> &needed) {
    std::vector<std::pair<uint32_t, uint64_t>> forgotten;
    std::erase_if(processes_, [&](const auto &entry) {
        const Slot &slot = *entry.second;
        if (slot.connections > 0 || needed(slot.id))
            return false;
        if (slot.stored)
            forgotten.emplace_back(slot.pid, slot.start_time);
        unwatched_ -= !slot.source && !slot.ended;
        return true;
    });
    return forgotten;
}

}  // namespace maru
