// The floors: what this machine can do at all, without marud.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "libmaru/copy/copy.h"

namespace maru::bench {

std::string size_text(size_t bytes);  // "64 KiB"

// How an end waits: asleep, or awake for a millisecond after the last message.
enum class Wait { Block, Spin };
inline constexpr unsigned kSpinUs =
    1000;  // of every spinning end: marud's, the client's, the floor's
inline unsigned spin_us(Wait wait) { return wait == Wait::Spin ? kSpinUs : 0; }

// A process that sends every packet back, over the kind of socket that marud has.
class PingPong {
  public:
    explicit PingPong(Wait wait);
    ~PingPong();
    PingPong(const PingPong &) = delete;
    PingPong &operator=(const PingPong &) = delete;
    double round_us(int turns);  // the median of one round trip

  private:
    const Wait wait_;
    pid_t child_ = -1;
    int socket_ = -1;
};

// The least a directory can do: an open-addressed table of 32-byte keys in lines of 64 bytes, at most 3/4
// full, on 2 MiB pages where the kernel has them, looked up with prefetches.
class LookupTable {
  public:
    explicit LookupTable(size_t entries);
    ~LookupTable();
    LookupTable(const LookupTable &) = delete;
    LookupTable &operator=(const LookupTable &) = delete;
    double round_us(size_t keys, int turns);  // the median; other keys each time
    static size_t bytes_of(size_t entries);

  private:
    struct Key {
        uint64_t words[4];
    };
    struct Slot;
    size_t mask_ = 0, bytes_ = 0;
    Slot *slots_ = nullptr;
    std::vector<Key> order_;
    size_t next_ = 0;
};

enum class Pages { Base, Huge };  // 4 KiB, 2 MiB
const char *pages_text(Pages pages);

// Shared memory as a pool's, written once. Throws NotMeasurable when the kernel has no such pages.
class SharedMemory {
  public:
    SharedMemory(size_t bytes, Pages pages);
    ~SharedMemory();
    SharedMemory(const SharedMemory &) = delete;
    SharedMemory &operator=(const SharedMemory &) = delete;
    uint8_t *data() const { return data_; }
    size_t size() const { return bytes_; }

  private:
    size_t bytes_;
    uint8_t *data_ = nullptr;
};

// Memory as an engine's: anonymous, on base pages.
class EngineMemory {
  public:
    explicit EngineMemory(size_t bytes);
    ~EngineMemory();
    EngineMemory(const EngineMemory &) = delete;
    EngineMemory &operator=(const EngineMemory &) = delete;
    uint8_t *data() const { return data_; }
    size_t size() const { return bytes_; }

  private:
    size_t bytes_;
    uint8_t *data_ = nullptr;
};

// What a reader does with what it loaded: one pass over it.
uint64_t read_all(const uint8_t *data, size_t size);

double raw_hash_us(size_t bytes, int turns);  // SHA-256, the fastest of this machine
double populate_gb_per_s(size_t bytes);       // MADV_POPULATE_WRITE of a new memfd
double populate_us(size_t bytes);             // the same, its time
double seal_us(size_t bytes);                 // F_SEAL_WRITE of a written memfd
double teardown_ms(size_t bytes);  // from SIGKILL to the end of a process that maps so much

}  // namespace maru::bench
