#include "tests/integration/hostile/party.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "libmaru/base/clock.h"

namespace maru::test {

using wire::Status;

void require(bool truth, const std::string &what) {
    if (!truth)
        throw Failed(what);
}

bool is_root() {
    static const bool root = ::geteuid() == 0;
    return root;
}

// By the system call: glibc's wrapper would change the uid of every thread.
AsUid::AsUid(uid_t uid) {
    if (is_root() && ::geteuid() != uid && ::syscall(SYS_setresuid, -1, uid, -1) != 0)
        throw Failed("cannot become uid " + std::to_string(uid));
}
AsUid::~AsUid() {
    if (is_root())
        ::syscall(SYS_setresuid, -1, 0, -1);
}

std::unique_ptr<WireClient> connect_as(uid_t uid, const std::string &socket) {
    AsUid as(uid);
    return std::make_unique<WireClient>(socket);
}

namespace {

[[noreturn]] void child_main(uid_t uid, const std::function<void()> &attack, int report) {
    std::string problem;
    try {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (is_root())
            require(::setgroups(0, nullptr) == 0 && ::setresgid(uid, uid, uid) == 0 &&
                        ::setresuid(uid, uid, uid) == 0,
                    "cannot become uid " + std::to_string(uid));
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // the change of uid has cleared it
        attack();
    } catch (const std::exception &error) {
        problem = error.what();
        if (problem.empty())
            problem = "an exception without text";
    }
    for (size_t sent = 0; sent < problem.size();) {
        ssize_t n = ::write(report, problem.data() + sent, problem.size() - sent);
        if (n <= 0)
            break;
        sent += static_cast<size_t>(n);
    }
    ::_exit(problem.empty() ? 0 : 1);
}

}  // namespace

std::string run_child(uid_t uid, const std::function<void()> &attack, int timeout_ms,
                      const std::function<void(pid_t)> &meanwhile) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) < 0)
        return "no pipe";
    UniqueFd in(ends[0]), out(ends[1]);
    pid_t pid = ::fork();
    if (pid == 0)
        child_main(uid, attack, out.get());
    out.reset();
    if (pid < 0)
        return "no child process";
    if (meanwhile)
        meanwhile(pid);
    std::string problem;
    int64_t deadline = monotonic_ns() + int64_t{timeout_ms} * 1'000'000;
    for (;;) {
        auto left = static_cast<int>(std::max<int64_t>(deadline - monotonic_ns(), 0) / 1'000'000);
        pollfd ready = {in.get(), POLLIN, 0};
        if (::poll(&ready, 1, left) == 0) {
            ::kill(pid, SIGKILL);
            problem += "the attack did not end within " + std::to_string(timeout_ms) + " ms";
            break;
        }
        char text[1024];
        ssize_t got = ::read(in.get(), text, sizeof text);
        if (got <= 0)
            break;
        problem.append(text, static_cast<size_t>(got));
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    if (problem.empty() && !(WIFEXITED(status) && WEXITSTATUS(status) == 0) &&
        !(meanwhile && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
        problem = "the attacker ended with status " + std::to_string(status);
    return problem;
}

wire::Token token_of(uint32_t number) {
    wire::Token token;
    for (size_t i = 0; i < token.size(); ++i)
        token[i] = static_cast<uint8_t>(0x5a + i);
    std::memcpy(token.data(), &number, sizeof number);
    return token;
}

wire::Digest digest_of(uint32_t number) {
    wire::Digest digest;
    digest.bytes.fill(0x11);
    std::memcpy(digest.bytes.data(), &number, sizeof number);
    return digest;
}

std::vector<wire::Digest> digests(uint32_t first, uint32_t count) {
    std::vector<wire::Digest> keys;
    for (uint32_t i = 0; i < count; ++i)
        keys.push_back(digest_of(first + i));
    return keys;
}

Party::Party(std::unique_ptr<WireClient> client, uint32_t token_number, std::string engine_id,
             wire::Role role)
    : token(token_of(token_number)),
      engine(std::move(engine_id)),
      client_(std::move(client)),
      role_(role) {}

Party::~Party() {
    for (char *at : mappings)
        ::munmap(at, kSegmentBytes);
}

Status Party::open() {
    const wire::Reply *reply = client_->call(wire::OpenSessionRequest{token, role_, engine});
    if (!reply)
        return Status::Internal;
    if (const auto *opened = std::get_if<wire::SessionReply>(&reply->body)) {
        session = opened->session;
        return Status::Ok;
    }
    return std::get<wire::StatusOnly>(reply->body).status;
}

void Party::done(Status status, const char *what) {
    require(status == Status::Ok, std::string(what) + " was answered " + wire::status_name(status) +
                                      ": " + client_->message());
}

void Party::use_namespace(const std::string &text) {
    const auto *named = client_->ask<wire::NamespaceReply>(wire::RegisterNamespaceRequest{text});
    require(named, "no namespace: " + client_->message());
    ns = named->namespace_id;
    if (role_ == wire::Role::Worker)
        done(client_->status(wire::DescribeRequest{ns, kObjectBytes, "raw"}), "describe");
}

void Party::make_pool(uint64_t bytes, wire::Scope scope) {
    wire::OpenPoolRequest request;
    request.capacity_bytes = bytes;
    request.page_bytes = kPageBytes;
    request.request_key = 1;
    request.scope = scope;
    const auto *opened = client_->ask<wire::PoolReply>(request);
    require(opened, "no pool: " + client_->message());
    pool = opened->pool;
    capacity = opened->capacity_bytes;
    segment_bytes = opened->segment_bytes;
    next_generation = opened->first_generation;
    const uint32_t count = opened->segment_count;
    for (uint32_t i = 0; i < count; ++i) {
        const auto *granted = client_->ask<wire::SegmentReply>(wire::GrantSegmentRequest{pool, i});
        require(granted && client_->fds().size() == 1, "no segment: " + client_->message());
        segments.push_back(std::move(client_->fds()[0]));
        void *at = ::mmap(nullptr, segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                          segments.back().get(), 0);
        require(at != MAP_FAILED, "cannot map a segment");
        mappings.push_back(static_cast<char *>(at));
        done(client_->status(wire::SegmentMappedRequest{pool, i}), "segmentMapped");
    }
}

void Party::store(uint32_t number, uint32_t page) {
    uint64_t offset = page * kPageBytes;
    std::memset(mappings[offset / segment_bytes] + offset % segment_bytes,
                static_cast<int>(number & 0xff), kPageBytes);
    std::vector<wire::CommitItem> items = {
        {{digest_of(number), 0, 0}, pool, offset, kObjectBytes, next_generation++}};
    const auto *done = client_->ask<wire::CommitReply>(wire::CommitRequest{ns, next_op++, items});
    require(done && done->results.size() == 1 && done->results[0].status == Status::Ok,
            "not committed: " + client_->message());
}

wire::AcquireResult Party::acquire(uint32_t number) {
    auto keys = digests(number, 1);
    const auto *reply = client_->ask<wire::AcquireReply>(wire::AcquireRequest{ns, keys});
    require(reply && reply->results.size() == 1, "no answer to acquire: " + client_->message());
    return reply->results[0];
}

Party worker(const std::string &socket, uid_t uid, uint32_t token, const std::string &engine,
             wire::Scope scope) {
    Party party(connect_as(uid, socket), token, engine);
    require(party.wire().hello(), "no hello");
    party.done(party.open(), "openSession");
    party.use_namespace();
    party.make_pool(kSegmentBytes, scope);
    return party;
}

}  // namespace maru::test
