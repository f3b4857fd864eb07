/* Prefix digests and their text form: the published vector, chaining, bad arguments. */
#include "capi_test.h"

static void digests_are_the_published_ones(void) {
    const uint32_t tokens[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    maru_digest digests[2], second;
    char text[2 * MARU_DIGEST_BYTES + 1];
    assert_int_equal(maru_prefix_digests("maru-test", tokens, 9, 4, NULL, digests), 2);
    assert_int_equal(maru_digest_format(&digests[0], text), 0);
    assert_true(strcmp(text, MARU_TEST_VECTOR_0) == 0);
    assert_int_equal(maru_digest_format(&digests[1], text), 0);
    assert_true(strcmp(text, MARU_TEST_VECTOR_1) == 0);
    assert_int_equal(maru_prefix_digests("maru-test", tokens + 4, 4, 4, &digests[0], &second), 1);
    assert_true(memcmp(&second, &digests[1], sizeof second) == 0);
}

static void text_is_parsed_back(void) {
    maru_digest digest;
    char text[2 * MARU_DIGEST_BYTES + 1];
    assert_int_equal(maru_digest_parse(MARU_TEST_VECTOR_1, &digest), 0);
    assert_int_equal(maru_digest_format(&digest, text), 0);
    assert_true(strcmp(text, MARU_TEST_VECTOR_1) == 0);
    assert_int_equal(maru_digest_parse("05aed81c19", &digest), -EINVAL);
    assert_message("64");
    assert_int_equal(maru_digest_parse(MARU_TEST_VECTOR_1 "0", &digest), -EINVAL);
    assert_int_equal(maru_digest_parse(NULL, &digest), -EINVAL);
    assert_int_equal(maru_digest_format(&digest, NULL), -EINVAL);
}

static void bad_arguments_are_named(void) {
    const uint32_t token = 0;
    maru_digest digest;
    assert_int_equal(maru_prefix_digests(NULL, &token, 1, 1, NULL, &digest), -EINVAL);
    assert_message("namespace_text");
    assert_int_equal(maru_prefix_digests("x", &token, 1, 0, NULL, &digest), -EINVAL);
    assert_message("chunk_tokens");
    assert_int_equal(maru_prefix_digests("x", NULL, 1, 1, NULL, &digest), -EINVAL);
    assert_message("tokens");
    assert_int_equal(maru_prefix_digests("x", &token, 1, 1, NULL, NULL), -EINVAL);
    assert_message("ret_digests");
    assert_int_equal(maru_prefix_digests("x", &token, 1, 2, NULL, NULL), 0);
}

static void errors_have_names(void) {
    assert_true(strcmp(maru_error_name(0), "OK") == 0);
    assert_true(strcmp(maru_error_name(-ENOENT), "ENOENT") == 0);
    assert_true(strcmp(maru_error_name(-EKEYREVOKED), "EKEYREVOKED") == 0);
    assert_true(strcmp(maru_error_name(-12345), "?") == 0);
    assert_true(strlen(maru_version()) >= 5);
}

static const struct capi_test tests[] = {
    {"DigestsAreThePublishedOnes", digests_are_the_published_ones, NULL},
    {"TextIsParsedBack", text_is_parsed_back, NULL},
    {"BadArgumentsAreNamed", bad_arguments_are_named, NULL},
    {"ErrorsHaveNames", errors_have_names, NULL},
};
CAPI_SUITE(key, tests);
