#include "libmaru/copy/paged.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace maru::copy {
namespace {

constexpr uint32_t kBlocks = 40;

// An engine's memory: layers of blocks, each byte of which says where it is.
struct Engine {
    Engine(size_t layers, uint64_t block_bytes, uint64_t block_stride)
        : bytes(layers, std::vector<uint8_t>(kBlocks * block_stride)),
          block(block_bytes),
          stride(block_stride) {
        for (auto &layer : bytes)
            addresses.push_back(layer.data());
    }
    void fill(uint32_t seed) {
        std::mt19937 random(seed);
        for (auto &layer : bytes)
            for (auto &byte : layer)
                byte = static_cast<uint8_t>(random());
    }
    PagedMemory paged() const { return {addresses, block, stride}; }
    std::string at(size_t layer, uint32_t id) const {
        return {reinterpret_cast<const char *>(bytes[layer].data()) + id * stride, block};
    }
    std::vector<std::vector<uint8_t>> bytes;
    std::vector<void *> addresses;
    uint64_t block, stride;
};

struct Objects {
    Objects(const Engine &engine, size_t count, size_t blocks)
        : bytes(count, std::vector<uint8_t>(engine.paged().object_bytes(blocks) + kChecksumBytes)) {
        for (auto &object : bytes)
            addresses.push_back(object.data());
    }
    std::vector<std::vector<uint8_t>> bytes;
    std::vector<void *> addresses;
};

// Runs of neighbours, single ones, backwards, and one block twice.
const std::vector<uint32_t> kIds = {3, 4, 5, 9, 8, 7, 20, 20, 39, 0, 1, 2};
constexpr size_t kPerObject = 4, kCount = 3;

TEST(Paged, ObjectsAreLayerByLayerWhateverTheBlocksOrder) {
    for (uint64_t block : {uint64_t{1}, uint64_t{100}, uint64_t{4096}, uint64_t{40000}})
        for (uint64_t gap : {0, 64})
            for (bool sum : {false, true})
                for (size_t threads : {1, 5}) {
                    Engine engine(3, block, block + gap);
                    engine.fill(1);
                    Objects objects(engine, kCount, kPerObject);
                    gather(engine.paged(), {kIds.data(), kPerObject, objects.addresses.data(),
                                            kCount, sum, threads});
                    for (size_t object = 0; object < kCount; ++object)
                        for (size_t layer = 0; layer < 3; ++layer)
                            for (size_t i = 0; i < kPerObject; ++i) {
                                const auto *found =
                                    objects.bytes[object].data() + (layer * kPerObject + i) * block;
                                ASSERT_EQ(std::string(found, found + block),
                                          engine.at(layer, kIds[object * kPerObject + i]));
                            }
                    uint8_t expected[kChecksumBytes] = {};
                    if (sum)
                        checksum(objects.bytes[1].data(), 3 * kPerObject * block, expected);
                    EXPECT_EQ(std::memcmp(objects.bytes[1].data() + 3 * kPerObject * block,
                                          expected, kChecksumBytes),
                              0);
                }
}

TEST(Paged, BlocksThatAreLeftOutAreNotWritten) {
    Engine engine(2, 5000, 5000);
    engine.fill(1);
    Objects objects(engine, 1, 4);
    const uint32_t from[] = {10, 11, 12, 13}, to[] = {kNoBlock, 31, kNoBlock, 33};
    gather(engine.paged(), {from, 4, objects.addresses.data(), 1, true, 0});
    Engine other(2, 5000, 5000);
    other.fill(2);
    const Engine before = other;
    int result = 1;
    EXPECT_TRUE(scatter(other.paged(), {to, 4, objects.addresses.data(), 1, true, 0}, &result));
    EXPECT_EQ(result, 0);
    for (size_t layer = 0; layer < 2; ++layer)
        for (uint32_t id = 0; id < kBlocks; ++id)
            EXPECT_EQ(other.at(layer, id), id == 31   ? engine.at(layer, 11)
                                           : id == 33 ? engine.at(layer, 13)
                                                      : before.at(layer, id));
}

TEST(Paged, ADamagedObjectIsRefusedWholeAndTheOthersAreCopied) {
    Engine engine(2, 300, 300);
    engine.fill(1);
    Objects objects(engine, kCount, kPerObject);
    gather(engine.paged(), {kIds.data(), kPerObject, objects.addresses.data(), kCount, true, 0});
    objects.bytes[1].back() ^= 1;                        // of the checksum itself
    objects.bytes[2][2 * kPerObject * 300 - 1] ^= 0x80;  // of the last byte it covers
    Engine other(2, 300, 300);
    int results[kCount];
    EXPECT_FALSE(scatter(other.paged(),
                         {kIds.data(), kPerObject, objects.addresses.data(), kCount, true, 3},
                         results));
    EXPECT_EQ(results[0], 0);
    EXPECT_EQ(results[1], -EBADMSG);
    EXPECT_EQ(results[2], -EBADMSG);
    EXPECT_EQ(other.at(1, 9), engine.at(1, 9));
    EXPECT_EQ(other.at(0, 8), std::string(300, '\0'));
    EXPECT_EQ(other.at(1, 0), std::string(300, '\0'));
}

// The published value of XXH3-128 for no bytes and seed 0.
TEST(Paged, TheChecksumIsXxh3) {
    uint8_t found[kChecksumBytes];
    checksum("", 0, found);
    const uint8_t empty[] = {0x99, 0xaa, 0x06, 0xd3, 0x01, 0x47, 0x98, 0xd8,
                             0x60, 0x01, 0xc3, 0x24, 0x46, 0x8d, 0x49, 0x7f};
    EXPECT_EQ(std::memcmp(found, empty, sizeof empty), 0);
}

TEST(Paged, SmallCopiesStayOnTheCallersThread) {
    EXPECT_EQ(worthwhile_threads(0), 1u);
    EXPECT_EQ(worthwhile_threads(1 << 20), 1u);
    EXPECT_GE(worthwhile_threads(uint64_t{1} << 40), 1u);
}

}  // namespace
}  // namespace maru::copy
