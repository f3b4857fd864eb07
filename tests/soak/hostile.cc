// A client that means ill: floods, garbage, half conversations, descriptors nobody asked for.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <random>
#include <stdexcept>
#include <vector>

#include "tests/integration/wire_client.h"
#include "tests/soak/actors.h"

namespace maru::soak {
namespace {

using test::WireClient;

class Hostile {
  public:
    explicit Hostile(const Actor &actor)
        : actor_(actor), engine_("hostile-" + std::to_string(actor.index)), random_(actor.seed) {}

    void turn() {
        switch (random_() % 8) {
            case 0:
                garbage();
                break;
            case 1:
                connect_storm();
                break;
            case 2:
                flood_without_reading();
                break;
            case 3:
                descriptors();
                break;
            case 4:
                wrong_order();
                break;
            case 5:
                half_session();
                break;
            case 6:
                strangers_ids();
                break;
            case 7:
                damaged_frames();
                break;
        }
    }

  private:
    void garbage() {
        WireClient client(actor_.socket);
        std::vector<uint8_t> bytes(random_() % 70'000);
        for (size_t i = 0; i < bytes.size(); i += 1 + random_() % 64)
            bytes[i] = static_cast<uint8_t>(random_());
        for (int n = 0; n < 20; ++n)
            if (::send(client.fd(), bytes.data(), bytes.size() >> n % 8,
                       MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
                return;
    }

    void connect_storm() {
        for (int n = 0; n < 100; ++n) {
            WireClient client(actor_.socket);
            if (n % 3 == 0)
                client.post(wire::HelloRequest{});
        }
    }

    void flood_without_reading() {
        WireClient client(actor_.socket);
        if (!client.hello())
            return;
        for (int n = 0; n < 3000; ++n)
            if (!client.post(wire::StatusRequest{}))
                return;
    }

    void descriptors() {
        WireClient client(actor_.socket);
        if (!client.hello())
            return;
        int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
        int memory = ::memfd_create("hostile", MFD_CLOEXEC);
        std::vector<int> fds;
        for (size_t n = random_() % 200; n; --n)
            fds.push_back(n % 2 ? null : memory);
        client.post(wire::HeartbeatRequest{}, fds);
        client.wait_end(100);
        ::close(null);
        ::close(memory);
    }

    void wrong_order() {
        WireClient client(actor_.socket);
        client.set_epoch(static_cast<uint32_t>(random_()));
        client.call(wire::HeartbeatRequest{}, {}, 200);
        client.call(wire::CloseSessionRequest{}, {}, 200);
        if (client.hello())
            client.call(wire::CloseSessionRequest{}, {}, 200);
    }

    // Opens a session and leaves; the next of the same engine takes over from it.
    void half_session() {
        WireClient client(actor_.socket);
        if (!client.hello())
            return;
        client.call(open_session(), {}, 1000);
        for (int n = 0; n < 4; ++n)
            client.post(wire::StatusRequest{});
    }

    void strangers_ids() {
        WireClient client(actor_.socket);
        if (!client.hello() || !client.call(open_session(), {}, 1000))
            return;
        for (int n = 0; n < 50; ++n) {
            wire::Id id = uint64_t{client.epoch()} << 32 | random_() % 64;
            client.post(wire::ClosePoolRequest{id, wire::ClosePhase::Force});
            std::vector<wire::ReplicaName> names(32, {id, random_() % 100});
            client.post(wire::RetireRequest{names});
            client.post(wire::ReleaseRequest{names});
        }
        client.call(wire::HeartbeatRequest{}, {}, 500);
        client.call(wire::CloseSessionRequest{}, {}, 500);
    }

    void damaged_frames() {
        WireClient client(actor_.socket);
        if (!client.hello())
            return;
        wire::Encoder encoder;
        for (int n = 0; n < 100; ++n) {
            wire::Request request;
            request.id = static_cast<uint64_t>(n) + 1000;
            request.epoch = client.epoch();
            request.body = open_session();
            auto frame = encoder.request(request);
            if (!frame)
                return;
            std::vector<std::byte> bytes(frame->begin(), frame->end());
            for (int flips = 0; flips < 4; ++flips)
                bytes[random_() % bytes.size()] ^= static_cast<std::byte>(1u << random_() % 8);
            bytes.resize(random_() % 4 ? bytes.size() : random_() % bytes.size());
            if (::send(client.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
                return;
        }
    }

    wire::OpenSessionRequest open_session() {
        wire::OpenSessionRequest open;
        for (auto &byte : open.token)
            byte = static_cast<std::remove_reference_t<decltype(byte)>>(random_());
        open.role = wire::Role::Worker;
        open.engine = engine_;
        return open;
    }

    const Actor &actor_;
    const std::string engine_;
    std::mt19937_64 random_;
};

}  // namespace

int run_hostile(const Actor &actor) {
    Hostile hostile(actor);
    while (!told_to_end()) {
        try {
            hostile.turn();
        } catch (const std::runtime_error &) {
            // marud refused the connection: it may.
        }
        ::usleep(1'000);
    }
    return 0;
}

}  // namespace maru::soak
