// HostileTest: one marud for all cases, and after each the same questions: is it the same process,
// with the same descriptors, counters and memory, and did another client notice anything?
//
// The bound for that other client is 10 ms, or kNoise times what the same client met just before with
// no attacker, or what a bare wake-up took meanwhile, whichever is most. Judged is the time without
// what the scheduler took (witness.h): on a loaded machine of few cores marud waits longer than
// 10 ms for its turn without any attacker. A case
// beyond the bound is run again, up to kAttempts times: what a client can do to others it can do
// every time, and what the machine does it does not.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "tests/integration/hostile/party.h"
#include "tests/integration/hostile/witness.h"
#include "tests/integration/marud_fixture.h"

namespace maru::test {

class HostileTest : public ::testing::Test {
  public:
    static constexpr double kBoundMs = 10, kNoise = 4;
    static constexpr int kAttempts = 3;
    // What marud may keep of an attack: the allocator's spare room where the queues of the clients
    // were (a client's has 1 MiB before it is no longer read from), and a stack page or two of each
    // thread that closes descriptors. All cases share one marud, so what each left behind adds up.
    static constexpr uint64_t kMemoryAllowance = 24 << 20;

    static const std::string &path() { return marud_->socket(); }

  protected:
    static void SetUpTestSuite();
    void SetUp() override;

    static Marud &marud() { return *marud_; }

    // The attack in a process of kAttackerUid, and all of the questions.
    void attack(const std::function<void()> &attack,
                const std::function<void(pid_t)> &meanwhile = {});
    // The same around something that runs here.
    void surround(const std::function<std::string()> &attack);

  private:
    static std::unique_ptr<Marud> marud_;
    static std::unique_ptr<Witness> witness_;
    static pid_t pid_;
};

}  // namespace maru::test
