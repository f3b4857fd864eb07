// A worker that speaks the wire and nothing more, for populations that no memory would hold: it commits into
// segments that it was granted and never touches. marud cannot tell, since it never looks at KV.
#pragma once

#include <maru/key.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/integration/wire_client.h"

namespace maru::bench {

class WireWorker {
  public:
    static constexpr uint64_t kObjectBytes = 4096;

    // A session with a pool for so many replicas; throws std::runtime_error with marud's words.
    WireWorker(const std::string &socket_path, const std::string &engine, const std::string &text,
               size_t replicas);

    // Commits all of them, batches of 1024 with several in flight; `progress` hears how many are done.
    void commit_all(const std::function<void(size_t)> &progress);

    static maru_digest digest(uint64_t number);

  private:
    template <typename Body>
    const Body &ask(wire::RequestBody body, const char *what);
    void open_pool();

    test::WireClient wire_;
    const size_t replicas_;
    wire::Id namespace_ = 0, pool_ = 0;
    uint64_t first_generation_ = 0;
};

}  // namespace maru::bench
