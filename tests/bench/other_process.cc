#include "tests/bench/other_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "tests/bench/client_worker.h"
#include "tests/bench/floors/floors.h"
#include "tests/bench/suite.h"

namespace maru::bench {

namespace {

constexpr char kMark[] = "--other-process";
constexpr int kSocket = 3;

void say(const Answer &answer) { (void)!::send(kSocket, &answer, sizeof answer, MSG_NOSIGNAL); }

bool next(Order &order) { return ::recv(kSocket, &order, sizeof order, 0) == sizeof order; }

// Stores and loads what it is told, from a certain moment on.
class Client {
  public:
    Client(Worker &worker, size_t objects)
        : worker_(worker),
          batches_(objects / kBatch / 2),
          source_(batches_ * worker.batch_bytes()),
          target_(batches_ * worker.batch_bytes()) {
        for (size_t batch = 0; batch < batches_; ++batch)
            worker_.fill(static_cast<uint32_t>(batch * kBatch), kBatch, from(batch));
    }
    void run(const Order &order, Answer &answer) {
        const size_t count = order.batches < batches_ ? order.batches : batches_;
        switch (order.kind) {
            case Order::Store:
                store(order, count, answer);
                break;
            case Order::CopyIn:
                copy_in(order, count, answer);
                break;
            case Order::Load:
                load(order, count, answer);
                break;
            case Order::CopyOut:
                copy_out(order, count, answer);
                break;
            case Order::End:
                break;
        }
    }

  private:
    const uint8_t *from(size_t batch) const {
        return source_.data() + batch * worker_.batch_bytes();
    }
    uint8_t *to(size_t batch) const { return target_.data() + batch * worker_.batch_bytes(); }
    void wait(const Order &order, Answer &answer) {
        worker_.warm();
        while (now_ns() < order.at_ns)
            __builtin_ia32_pause();
        answer.begin_ns = now_ns();
    }
    void store(const Order &order, size_t count, Answer &answer) {
        const auto keys = worker_.new_keys(count * kBatch);
        wait(order, answer);
        for (size_t batch = 0; batch < count; ++batch) {
            const auto runs = worker_.reserve(kBatch);
            worker_.copy_in(runs, from(batch));
            worker_.commit(&keys[batch * kBatch], runs.data(), kBatch);
        }
        answer.end_ns = now_ns();
        worker_.retire(keys);
    }
    void copy_in(const Order &order, size_t count, Answer &answer) {
        std::vector<std::vector<maru_reservation>> runs;
        for (size_t batch = 0; batch < count; ++batch)
            runs.push_back(worker_.reserve(kBatch));
        wait(order, answer);
        for (size_t batch = 0; batch < count; ++batch)
            worker_.copy_in(runs[batch], from(batch));
        answer.end_ns = now_ns();
        for (const auto &some : runs)
            worker_.abort(some);
    }
    void load(const Order &order, size_t count, Answer &answer) {
        std::vector<std::vector<maru_digest>> digests;
        for (size_t batch = 0; batch < count; ++batch)
            digests.push_back(worker_.digests(static_cast<uint32_t>(batch * kBatch), kBatch));
        void *buffers[kBatch];
        wait(order, answer);
        for (size_t batch = 0; batch < count; ++batch) {
            for (size_t i = 0; i < kBatch; ++i)
                buffers[i] = to(batch) + i * worker_.object_bytes();
            must_be(maru_load(worker_.ns(), digests[batch].data(), kBatch, nullptr, 0, buffers,
                              worker_.object_bytes(), nullptr),
                    kBatch, "maru_load");
        }
        answer.end_ns = now_ns();
    }
    void copy_out(const Order &order, size_t count, Answer &answer) {
        std::vector<maru_lease *> leases(count * kBatch);
        for (size_t batch = 0; batch < count; ++batch) {
            const auto digests = worker_.digests(static_cast<uint32_t>(batch * kBatch), kBatch);
            must_be(maru_acquire(worker_.ns(), digests.data(), kBatch, nullptr, 0,
                                 &leases[batch * kBatch]),
                    kBatch, "maru_acquire");
        }
        wait(order, answer);
        for (size_t batch = 0; batch < count; ++batch)
            for (size_t i = 0; i < kBatch; ++i)
                maru_copy_out(to(batch) + i * worker_.object_bytes(),
                              maru_lease_data(leases[batch * kBatch + i]), worker_.object_bytes());
        answer.end_ns = now_ns();
        must(maru_lease_release(leases.data(), leases.size()), "maru_lease_release");
    }

    Worker &worker_;
    const size_t batches_;
    EngineMemory source_, target_;
};

void serve(Role role, Worker &worker, size_t objects) {
    std::unique_ptr<Client> client;
    if (role == Role::Client) {
        client = std::make_unique<Client>(worker, objects);
    } else {
        const std::vector<uint8_t> bytes(worker.batch_bytes(), 5);
        worker.fill(0, objects, bytes.data());
    }
    Answer ready;
    ready.ok = 1;
    say(ready);
    for (Order order; next(order) && order.kind != Order::End;) {
        Answer answer;
        if (client)
            client->run(order, answer);
        answer.ok = 1;
        say(answer);
    }
}

}  // namespace

OtherProcess::OtherProcess(const OtherSetup &setup) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        throw std::runtime_error("socketpair");
    UniqueFd mine(ends[0]), theirs(ends[1]);
    const std::string role = std::to_string(static_cast<uint32_t>(setup.role));
    const std::string bytes = std::to_string(setup.object_bytes);
    const std::string objects = std::to_string(setup.objects);
    child_ = ::fork();
    if (child_ == 0) {
        pin(0, setup.cpu);
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (theirs.get() == kSocket)
            ::fcntl(kSocket, F_SETFD, 0);
        else
            ::dup2(theirs.get(), kSocket);
        ::execl(setup.bench.c_str(), "bench", kMark, role.c_str(), setup.socket_path.c_str(),
                setup.engine.c_str(), bytes.c_str(), objects.c_str(), static_cast<char *>(nullptr));
        ::_exit(127);
    }
    socket_ = std::move(mine);
    theirs.reset();
    receive();
}

OtherProcess::~OtherProcess() {
    if (child_ > 0) {
        const Order end;
        (void)!::send(socket_.get(), &end, sizeof end, MSG_NOSIGNAL);
        ::waitpid(child_, nullptr, 0);
    }
}

void OtherProcess::reap() {
    ::waitpid(child_, nullptr, 0);
    child_ = -1;
}

void OtherProcess::send(const Order &order) {
    if (::send(socket_.get(), &order, sizeof order, MSG_NOSIGNAL) != sizeof order)
        throw std::runtime_error("the other process is gone");
}

Answer OtherProcess::receive() {
    Answer answer;
    if (::recv(socket_.get(), &answer, sizeof answer, 0) != sizeof answer) {
        reap();
        throw std::runtime_error("the other process has ended");
    }
    if (!answer.ok)
        throw std::runtime_error("the other process: " + std::string(answer.error));
    return answer;
}

int run_as_other_process(int argc, char **argv) {
    if (argc != 7 || std::strcmp(argv[1], kMark) != 0)
        return -1;
    try {
        WorkerSetup setup;
        setup.socket_path = argv[3];
        setup.engine = argv[4];
        setup.object_bytes = std::strtoull(argv[5], nullptr, 10);
        setup.objects = std::strtoull(argv[6], nullptr, 10);
        setup.text = "other";
        const auto role = static_cast<Role>(std::atoi(argv[2]));
        setup.scope = role == Role::Holder ? MARU_SCOPE_HOST : MARU_SCOPE_WORKER;
        const size_t objects = setup.objects;
        if (role == Role::Client)
            setup.text = setup.engine;
        Worker worker(std::move(setup));
        serve(role, worker, objects);
        return 0;
    } catch (const std::exception &error) {
        Answer answer;
        std::snprintf(answer.error, sizeof answer.error, "%s", error.what());
        say(answer);
        return 1;
    }
}

}  // namespace maru::bench
