#include "libmaru/digest/sha256.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace maru::digest {
namespace {

std::string hex(const std::array<uint8_t, kSha256Bytes> &bytes) {
    std::string text;
    for (uint8_t b : bytes) {
        text += "0123456789abcdef"[b >> 4];
        text += "0123456789abcdef"[b & 15];
    }
    return text;
}

std::vector<Sha256Compress> paths() {
    std::vector<Sha256Compress> all = {sha256_compress_portable};
    if (sha256_has_extensions())
        all.push_back(sha256_compress_extensions);
    return all;
}

std::string hash(Sha256Compress path, const void *data, size_t size) {
    Sha256 sha(path);
    sha.update(data, size);
    return hex(sha.finish());
}

TEST(Sha256, MatchesTheStandardsVectors) {
    for (Sha256Compress path : paths()) {
        EXPECT_EQ(hash(path, "abc", 3),
                  "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        const std::string two = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        EXPECT_EQ(hash(path, two.data(), two.size()),
                  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
        const std::string million(1000000, 'a');
        EXPECT_EQ(hash(path, million.data(), million.size()),
                  "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
}

// From Python: hashlib.sha256(bytes((i * 7 + 3) & 255 for i in range(n))).hexdigest()
TEST(Sha256, MatchesHashlibAroundEveryPaddingCase) {
    static constexpr struct {
        size_t size;
        const char *digest;
    } kGolden[] = {
        {0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {1, "084fed08b978af4d7d196a7446a86b58009e636b611db16211b65a9aadff29c5"},
        {55, "e7313d333c272e639f790978283f9eb392e843d0f29b7016828bb1daa4aac70b"},
        {56, "4324d65f3c103567f5589c710bc08f8523f929a9272e3af36fc968e52abc6c27"},
        {63, "81c80242132f230c3bd41b3e63bbcff16107339549214a99614ff26664625055"},
        {64, "39e3d7b6b5d075d37d053ad89b24b41bef4f3c29760c84447cab3f3be1882241"},
        {65, "aacca6ff74fdbb296d165a45cecfa04e5127bc008770fbbdd48006f2d2fae95e"},
        {119, "9ce7368e4daf32341631b492e80359dc9f594b48453cd0dd5bf0b19279cc177e"},
        {120, "7836b787757e95e58b3ca5aec90b1b004e8deba1e50e9675af9cabf1a13a04b5"},
        {127, "a8d23e75d936f303d248888d9b165ee543f4cbafcad3c9dd2a79bd84faa11d07"},
        {128, "d2742f1f4ac6bb7ca2b239ee18402ba8b3f9f8e652d2a72973c2b9ba11c08cf6"},
        {129, "307f8fc2c1622b92762e818d39a185d4d667ad49a4b07ceae1f4afa008a93ec4"},
        {1000, "1e9bc38cbf860b9ec31918b065f9b52476c549a782e0e7990bed8ce3868d2371"},
    };
    for (Sha256Compress path : paths())
        for (const auto &golden : kGolden) {
            std::vector<uint8_t> data(golden.size);
            for (size_t i = 0; i < data.size(); ++i)
                data[i] = static_cast<uint8_t>(i * 7 + 3);
            EXPECT_EQ(hash(path, data.data(), data.size()), golden.digest) << golden.size;
        }
}

TEST(Sha256, PathsAgreeOnRandomMessagesInRandomPieces) {
    if (!sha256_has_extensions())
        GTEST_SKIP() << "this processor has no SHA extensions";
    std::mt19937_64 random(20260101);
    std::vector<uint8_t> data(5000);
    for (auto &byte : data)
        byte = static_cast<uint8_t>(random());
    for (int round = 0; round < 2000; ++round) {
        const size_t at = random() % 64, size = random() % (data.size() - at);
        Sha256 pieces(sha256_compress_extensions);
        for (size_t done = 0; done < size;) {
            const size_t take = std::min<size_t>(size - done, random() % 200);
            pieces.update(data.data() + at + done, take);
            done += take;
        }
        ASSERT_EQ(hex(pieces.finish()), hash(sha256_compress_portable, data.data() + at, size))
            << "size " << size << " at " << at;
    }
}

TEST(Sha256, FinishStartsANewMessage) {
    Sha256 sha;
    sha.update("something else", 14);
    sha.finish();
    sha.update("abc", 3);
    EXPECT_EQ(hex(sha.finish()), hash(sha256_compress_portable, "abc", 3));
}

}  // namespace
}  // namespace maru::digest
