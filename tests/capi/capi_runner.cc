// Runs the tests written in C: each with a marud of its own, a failed assertion ending it.
//
// The assertion leaves by longjmp: between it and the setjmp below lie C frames only.
#include <gtest/gtest.h>
#include <setjmp.h>

#include <cstdio>

#include "tests/capi/capi_test.h"
#include "tests/integration/marud_fixture.h"

namespace {

// Not an owner: a forked child that exits normally must not end its parent's marud.
maru::test::Marud *g_marud = nullptr;
jmp_buf g_end_of_test;

constexpr char kConfig[] =
    "[sessions]\ntimeout = \"5s\"\n"
    "[cpu]\nhost_bytes = \"512MiB\"\nsegment_bytes = \"2MiB\"\n";

class CTest : public testing::Test {
  public:
    explicit CTest(const capi_test &test) : test_(test) {}
    void TestBody() override {
        maru::test::MarudOptions options;
        options.config = test_.config ? test_.config : kConfig;
        maru::test::Marud marud(options);
        marud.start();
        g_marud = &marud;
        if (::setjmp(g_end_of_test) == 0)
            test_.run();
        if (HasFailure())
            std::fprintf(stderr, "marud's log:\n%s\n", g_marud->log().c_str());
        g_marud = nullptr;
    }

  private:
    const capi_test &test_;
};

void add(const capi_suite &suite) {
    for (size_t i = 0; i < suite.count; ++i) {
        const capi_test &test = suite.tests[i];
        testing::RegisterTest(suite.name, test.name, nullptr, nullptr, __FILE__, __LINE__,
                              [&test]() -> testing::Test * { return new CTest(test); });
    }
}

}  // namespace

extern "C" {

const char *marud_socket(void) { return g_marud->socket().c_str(); }
void marud_kill(void) { g_marud->kill(); }
void marud_start(void) { g_marud->start(); }
void marud_restart(void) { g_marud->restart(); }
void marud_forget(void) { g_marud->drop_stored(); }
void marud_signal(int number) { g_marud->signal(number); }
int marud_pid(void) { return g_marud->pid(); }

void capi_fail(const char *file, int line, const char *text) {
    ADD_FAILURE_AT(file, line) << "not so: " << text << "\n  last error: " << maru_last_error();
    ::longjmp(g_end_of_test, 1);
}

void capi_fail_int(const char *file, int line, const char *text, long long got, long long wanted) {
    ADD_FAILURE_AT(file, line) << "not so: " << text << "\n  " << got << " ("
                               << maru_error_name(static_cast<int>(got)) << ") instead of "
                               << wanted << "\n  last error: " << maru_last_error();
    ::longjmp(g_end_of_test, 1);
}

void capi_skip(const char *why) {
    testing::internal::AssertHelper(testing::TestPartResult::kSkip, __FILE__, __LINE__, why) =
        testing::Message();
    ::longjmp(g_end_of_test, 1);
}

#define SUITE(name) extern const struct capi_suite capi_suite_##name;
#include "tests/capi/suites.h"
#undef SUITE

}  // extern "C"

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
#define SUITE(name) add(capi_suite_##name);
#include "tests/capi/suites.h"
#undef SUITE
    return RUN_ALL_TESTS();
}
