#include "libmaru/cuda/batches.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <random>
#include <vector>

#include "libmaru/cuda/pinned_ranges.h"
#include "tests/libmaru/cuda/reference.h"

namespace maru::cuda {
namespace {

void *at(uint64_t address) { return reinterpret_cast<void *>(address); }

// (engine's address, object's address) of every block that the batches move, with how often.
std::map<std::pair<uint64_t, uint64_t>, int> moved(const std::vector<Batch> &batches) {
    std::map<std::pair<uint64_t, uint64_t>, int> found;
    for (const Batch &batch : batches) {
        EXPECT_TRUE(reference::well_formed(batch));
        for (uint32_t layer = 0; layer < batch.layer_count; ++layer)
            for (uint32_t row = 0; row < batch.row_count; ++row)
                ++found[{batch.layers[layer] + batch.blocks[row] * batch.block_stride,
                         batch.rows[row] + layer * batch.layer_bytes}];
    }
    return found;
}

TEST(CudaBatches, MoveEachBlockOfEachLayerOnce) {
    std::mt19937_64 random(1);
    for (int round = 0; round < 12; ++round) {
        const size_t layers = 1 + random() % 150, per_object = 1 + random() % 12;
        const uint64_t block_bytes = 1 + random() % 5000, stride = block_bytes + random() % 3 * 16;
        std::vector<void *> addresses;
        for (size_t i = 0; i < layers; ++i)
            addresses.push_back(at((uint64_t{1} << 40) + i * (uint64_t{1} << 30)));
        std::vector<uint32_t> blocks;
        std::vector<DeviceObject> objects;
        const size_t count = random() % 30;
        for (size_t i = 0; i < count * per_object; ++i)
            blocks.push_back(random() % 6 == 0 ? copy::kNoBlock : static_cast<uint32_t>(i));
        std::map<std::pair<uint64_t, uint64_t>, int> expected;
        for (size_t o = 0; o < count; ++o) {
            objects.push_back({blocks.data() + o * per_object, (o + 1) << 32});
            for (size_t layer = 0; layer < layers; ++layer)
                for (size_t i = 0; i < per_object; ++i)
                    if (objects[o].blocks[i] != copy::kNoBlock)
                        ++expected[{reinterpret_cast<uintptr_t>(addresses[layer]) +
                                        objects[o].blocks[i] * stride,
                                    objects[o].address + (layer * per_object + i) * block_bytes}];
        }
        std::vector<Batch> batches;
        ASSERT_TRUE(for_each_batch({addresses, block_bytes, stride}, per_object, objects,
                                   [&](Batch &batch) -> Result<void> {
                                       batches.push_back(batch);
                                       return {};
                                   }));
        ASSERT_EQ(moved(batches), expected);
        // As few as they can be.
        const size_t rows = expected.size() / layers;
        EXPECT_EQ(batches.size(), (layers + Batch::kLayers - 1) / Batch::kLayers *
                                      ((rows + Batch::kRows - 1) / Batch::kRows));
    }
}

TEST(CudaBatches, WidthIsTheWidestThatEverythingIsAlignedTo) {
    const uint32_t block[1] = {1};
    for (const auto &[layer, bytes, stride, object, width] :
         std::initializer_list<std::tuple<uint64_t, uint64_t, uint64_t, uint64_t, uint32_t>>{
             {4096, 4096, 4096, 8192, 16},
             {4096, 48, 48, 8192, 16},
             {4096, 8, 16, 8192, 8},
             {4100, 4096, 4096, 8192, 4},
             {4096, 4096, 4098, 8192, 2},
             {4096, 4096, 4096, 8193, 1},
             {4096, 7, 16, 8192, 1}}) {
        std::vector<void *> layers = {at(layer)};
        const DeviceObject objects[1] = {{block, object}};
        uint32_t found = 0;
        ASSERT_TRUE(
            for_each_batch({layers, bytes, stride}, 1, objects, [&](Batch &batch) -> Result<void> {
                found = batch.width;
                return {};
            }));
        EXPECT_EQ(found, width) << layer << ' ' << bytes << ' ' << stride << ' ' << object;
    }
}

TEST(CudaBatches, FirstErrorEndsIt) {
    std::vector<void *> layers(300, at(4096));
    const uint32_t block[1] = {0};
    const DeviceObject objects[1] = {{block, 8192}};
    int launches = 0;
    auto done = for_each_batch({layers, 16, 16}, 1, objects, [&](Batch &) -> Result<void> {
        if (++launches == 2)
            return Error{EIO, "second"};
        return {};
    });
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().message, "second");
    EXPECT_EQ(launches, 2);
}

TEST(PinnedRanges, CoverWhatIsRegisteredWithoutAHole) {
    PinnedRanges ranges;
    EXPECT_FALSE(ranges.covers(at(4096), 1));
    ranges.add(at(4096), 4096);
    ranges.add(at(8192), 4096);
    ranges.add(at(16384), 4096);
    EXPECT_TRUE(ranges.covers(at(4096), 8192));
    EXPECT_TRUE(ranges.covers(at(5000), 6000));
    EXPECT_TRUE(ranges.covers(at(12287), 1));
    EXPECT_FALSE(ranges.covers(at(4095), 2));
    EXPECT_FALSE(ranges.covers(at(12287), 2));
    EXPECT_FALSE(ranges.covers(at(4096), 16384));
    EXPECT_FALSE(ranges.covers(at(12288), 1));
    ranges.remove(at(8192));
    EXPECT_FALSE(ranges.covers(at(4096), 8192));
    EXPECT_TRUE(ranges.covers(at(4096), 4096));
}

}  // namespace
}  // namespace maru::cuda
