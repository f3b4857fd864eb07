// Gather and scatter of a GPU's memory: the same tests for the reference and, where there is one, a GPU.
// What is right is said by copy::gather and copy::scatter on a copy of the engine's memory.
#include "libmaru/cuda/paged.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <random>

#include "libmaru/cuda/pinning.h"
#include "tests/libmaru/cuda/machine.h"

namespace maru::cuda {
namespace {

struct Geometry {
    size_t layers;
    uint64_t block_bytes, block_stride;
    uint32_t block_count;
    size_t per_object, objects;
};

// An engine with the same bytes in the GPU's memory and in a copy, and room for objects.
class Engine {
  public:
    Engine(Machine &machine, const Geometry &geometry) : machine_(machine), g_(geometry) {
        std::mt19937_64 random(7);
        for (size_t layer = 0; layer < g_.layers; ++layer) {
            copies_.emplace_back(layer_bytes());
            for (auto &byte : copies_.back())
                byte = static_cast<char>(random());
            device_layers.push_back(machine_.allocate(layer_bytes()));
            machine_.write(device_layers.back(), copies_.back().data(), layer_bytes());
        }
        for (auto &copy : copies_)
            host_layers.push_back(copy.data());
        object_bytes = g_.layers * g_.per_object * g_.block_bytes;
        room_ = (object_bytes + copy::kChecksumBytes + 4095) / 4096 * 4096;
        memory_ = static_cast<char *>(::aligned_alloc(4096, 2 * room_ * g_.objects));
        std::memset(memory_, 0x5a, 2 * room_ * g_.objects);
        for (size_t i = 0; i < g_.objects; ++i) {
            objects.push_back(memory_ + i * room_);
            expected.push_back(memory_ + (g_.objects + i) * room_);
        }
        for (size_t i = 0; i < g_.objects * g_.per_object; ++i)
            blocks.push_back(static_cast<uint32_t>(random() % g_.block_count));
    }
    ~Engine() { ::free(memory_); }

    copy::PagedMemory on_device() { return {device_layers, g_.block_bytes, g_.block_stride}; }
    copy::PagedMemory on_host() { return {host_layers, g_.block_bytes, g_.block_stride}; }
    copy::Transfer transfer(const std::vector<void *> &to, bool checksum = false) {
        return {blocks.data(), g_.per_object, to.data(), g_.objects, checksum, 1};
    }
    Pinning pin(size_t objects_to_pin, uint64_t piece = kMaxPieceBytes) {
        auto pinned = Pinning::pin(machine_.driver(), memory_, objects_to_pin * room_, 0, piece);
        EXPECT_TRUE(pinned);
        return pinned ? std::move(*pinned) : Pinning();
    }
    // Is the GPU's memory what the copy is?
    bool same_engine() {
        std::vector<char> found(layer_bytes());
        for (size_t layer = 0; layer < g_.layers; ++layer) {
            machine_.read(found.data(), device_layers[layer], found.size());
            if (found != copies_[layer])
                return false;
        }
        return true;
    }
    bool same_object(size_t i, uint64_t bytes) {
        return std::memcmp(objects[i], expected[i], bytes) == 0;
    }
    void clear_engine() {
        for (size_t layer = 0; layer < g_.layers; ++layer) {
            std::fill(copies_[layer].begin(), copies_[layer].end(), 0x11);
            machine_.write(device_layers[layer], copies_[layer].data(), layer_bytes());
        }
    }

    std::vector<void *> device_layers, host_layers, objects, expected;
    std::vector<uint32_t> blocks;
    uint64_t object_bytes = 0;

  private:
    uint64_t layer_bytes() const { return g_.block_stride * g_.block_count; }
    Machine &machine_;
    const Geometry g_;
    std::vector<std::vector<char>> copies_;
    uint64_t room_ = 0;
    char *memory_ = nullptr;
};

constexpr Geometry kGeometries[] = {
    {1, 4096, 4096, 8, 1, 1},
    {2, 65536, 65536, 32, 16, 3},    // as an engine's: pieces, several rows
    {3, 100'000, 100'032, 5, 2, 2},  // a stride, a last piece that is short
    {130, 48, 48, 40, 4, 70},        // more layers and rows than a batch has
    {2, 7, 9, 11, 3, 2},             // no alignment at all
    {2, 10, 10, 11, 3, 2},
    {2, 12, 20, 11, 3, 2},
    {2, 8, 24, 11, 3, 2},
};

class CudaPaged : public testing::TestWithParam<Processor> {
  protected:
    void SetUp() override {
        auto made = Machine::make(GetParam());
        if (!made)
            GTEST_SKIP() << made.error().message;
        machine = std::move(*made);
    }
    void wait() {
        auto waited = cuda::wait(machine->device(), nullptr);
        ASSERT_TRUE(waited) << waited.error().message;
    }
    std::unique_ptr<Machine> machine;
};

TEST_P(CudaPaged, GatherIsWhatTheCpuGathers) {
    for (const Geometry &geometry : kGeometries)
        // Registered: all, none, some, and in pieces of a page.
        for (const auto &[pinned, piece] : {std::pair{geometry.objects, kMaxPieceBytes},
                                            {size_t{0}, kMaxPieceBytes},
                                            {geometry.objects / 2, kMaxPieceBytes},
                                            {geometry.objects, uint64_t{4096}}}) {
            SCOPED_TRACE(testing::Message() << geometry.layers << " layers of "
                                            << geometry.block_bytes << ", " << pinned << " pinned");
            Engine engine(*machine, geometry);
            const Pinning pin = pinned ? engine.pin(pinned, piece) : Pinning();
            copy::gather(engine.on_host(), engine.transfer(engine.expected));
            auto gathered = gather(machine->device(), engine.on_device(),
                                   engine.transfer(engine.objects), nullptr);
            ASSERT_TRUE(gathered) << gathered.error().message;
            wait();
            for (size_t i = 0; i < geometry.objects; ++i)  // and not a byte behind it
                EXPECT_TRUE(engine.same_object(i, engine.object_bytes + copy::kChecksumBytes)) << i;
            EXPECT_TRUE(engine.same_engine());
        }
}

TEST_P(CudaPaged, ScatterIsWhatTheCpuScatters) {
    for (const Geometry &geometry : kGeometries)
        for (size_t pinned : {geometry.objects, size_t{0}, geometry.objects / 2}) {
            SCOPED_TRACE(testing::Message() << geometry.layers << " layers of "
                                            << geometry.block_bytes << ", " << pinned << " pinned");
            Engine engine(*machine, geometry);
            const Pinning pin = pinned ? engine.pin(pinned) : Pinning();
            copy::gather(engine.on_host(), engine.transfer(engine.objects));
            engine.clear_engine();
            // Each block once: who writes last is not said. Some are left out.
            std::vector<bool> used(geometry.block_count);
            for (size_t i = 0; i < engine.blocks.size(); ++i) {
                uint32_t &block = engine.blocks[i];
                if (used[block] || i % 5 == 4)
                    block = copy::kNoBlock;
                else
                    used[block] = true;
            }
            copy::scatter(engine.on_host(), engine.transfer(engine.objects), nullptr);
            std::vector<int> results(geometry.objects, 1);
            auto scattered = scatter(machine->device(), engine.on_device(),
                                     engine.transfer(engine.objects), results.data(), nullptr);
            ASSERT_TRUE(scattered) << scattered.error().message;
            wait();
            EXPECT_TRUE(engine.same_engine());
            EXPECT_EQ(results, std::vector<int>(geometry.objects, 0));
        }
}

TEST_P(CudaPaged, OneStreamKeepsTheOrder) {
    Engine engine(*machine, {2, 4096, 4096, 16, 2, 1});
    const Pinning pin = engine.pin(1);
    engine.blocks = {3, 4};
    copy::gather(engine.on_host(), engine.transfer(engine.expected));
    ASSERT_TRUE(
        gather(machine->device(), engine.on_device(), engine.transfer(engine.objects), nullptr));
    engine.blocks = {9, 8};
    ASSERT_TRUE(scatter(machine->device(), engine.on_device(), engine.transfer(engine.objects),
                        nullptr, nullptr));
    wait();
    copy::scatter(engine.on_host(), engine.transfer(engine.expected), nullptr);
    EXPECT_TRUE(engine.same_engine());
}

TEST_P(CudaPaged, ChecksumsAreThoseOfTheCpu) {
    for (size_t pinned : {3, 0}) {
        Engine engine(*machine, {2, 4096, 4096, 16, 2, 3});
        const Pinning pin = pinned ? engine.pin(pinned) : Pinning();
        copy::gather(engine.on_host(), engine.transfer(engine.expected, true));
        ASSERT_TRUE(gather(machine->device(), engine.on_device(),
                           engine.transfer(engine.objects, true), nullptr));
        for (size_t i = 0; i < 3; ++i)  // without a wait: the checksum needed the bytes
            EXPECT_TRUE(engine.same_object(i, engine.object_bytes + copy::kChecksumBytes));
    }
}

TEST_P(CudaPaged, DamagedObjectIsLeftOutAndTheOthersAreCopied) {
    Engine engine(*machine, {2, 4096, 4096, 16, 2, 3});
    const Pinning pin = engine.pin(3);
    engine.blocks = {0, 1, 2, 3, 4, 5};
    copy::gather(engine.on_host(), engine.transfer(engine.objects, true));
    engine.clear_engine();
    static_cast<char *>(engine.objects[1])[17] ^= 1;
    copy::scatter(engine.on_host(), engine.transfer(engine.objects, true), nullptr);
    int results[3] = {1, 1, 1};
    auto scattered = scatter(machine->device(), engine.on_device(),
                             engine.transfer(engine.objects, true), results, nullptr);
    ASSERT_FALSE(scattered);
    EXPECT_EQ(scattered.error().code, EBADMSG);
    EXPECT_EQ(results[0], 0);
    EXPECT_EQ(results[1], -EBADMSG);
    EXPECT_EQ(results[2], 0);
    wait();
    EXPECT_TRUE(engine.same_engine());
}

TEST_P(CudaPaged, NothingToMoveIsDone) {
    Engine engine(*machine, {1, 4096, 4096, 4, 2, 1});
    engine.blocks = {copy::kNoBlock, copy::kNoBlock};
    const Pinning pin = engine.pin(1);
    EXPECT_TRUE(scatter(machine->device(), engine.on_device(), engine.transfer(engine.objects),
                        nullptr, nullptr));
    copy::Transfer none = engine.transfer(engine.objects);
    none.count = 0;
    EXPECT_TRUE(gather(machine->device(), engine.on_device(), none, nullptr));
    wait();
    EXPECT_TRUE(engine.same_engine());
}

INSTANTIATE_TEST_SUITE_P(On, CudaPaged, testing::Values(Processor::Reference, Processor::Gpu),
                         [](const auto &on) {
                             return on.param == Processor::Gpu ? "Gpu" : "Reference";
                         });

// ---- what only a stand-in can be asked ------------------------------------------------------------

class CudaLaunches : public testing::Test {
  protected:
    CudaLaunches() : driver(fake_table(gpu)) {
        static const unsigned char image[1] = {0};
        device = std::move(*Device::open(driver, 0, image));
    }
    FakeGpu gpu;
    Driver driver;
    std::unique_ptr<Device> device;
    CUstream stream = reinterpret_cast<CUstream>(uintptr_t{0x77});
    alignas(4096) char object[8192] = {};
    std::vector<char> layer = std::vector<char>(65536, 3);
    std::vector<void *> layers = {layer.data()};
    copy::PagedMemory memory{layers, 4096, 4096};
    const uint32_t blocks[2] = {4, 6};
    void *objects[1] = {object};
    copy::Transfer transfer{blocks, 2, objects, 1, false, 1};
};

TEST_F(CudaLaunches, RegisteredObjectsAreWrittenByAKernelOnTheCallersStreamAfterTheCallReturned) {
    auto pin = Pinning::pin(driver, object, sizeof object);
    ASSERT_TRUE(gather(*device, memory, transfer, stream));
    EXPECT_EQ(gpu.launches(stream), 1u);
    EXPECT_EQ(gpu.copies(), 0u);
    EXPECT_EQ(object[0], 0);  // not yet
    ASSERT_TRUE(wait(*device, nullptr));
    EXPECT_EQ(object[0], 0);  // that was another stream
    ASSERT_TRUE(wait(*device, stream));
    EXPECT_EQ(object[0], 3);
}

TEST_F(CudaLaunches, NoKernelTouchesMemoryThatIsNotRegisteredWhole) {
    auto pin = Pinning::pin(driver, object, 4096);  // only its first half
    ASSERT_TRUE(gather(*device, memory, transfer, stream));
    EXPECT_EQ(gpu.launches(stream), 0u);
    EXPECT_GT(gpu.copies(), 0u);
    ASSERT_TRUE(wait(*device, stream));
    EXPECT_EQ(object[0], 3);
    EXPECT_EQ(object[8191], 3);
}

TEST_F(CudaLaunches, WhatWasUnregisteredIsForgotten) {
    { auto pin = Pinning::pin(driver, object, sizeof object); }
    ASSERT_TRUE(gather(*device, memory, transfer, stream));
    EXPECT_EQ(gpu.launches(stream), 0u);
    ASSERT_TRUE(wait(*device, stream));
}

TEST_F(CudaLaunches, RunsOfNeighboursAreOneCopy) {
    const uint32_t neighbours[2] = {4, 5};
    transfer.blocks = neighbours;
    ASSERT_TRUE(gather(*device, memory, transfer, stream));
    EXPECT_EQ(gpu.copies(), 1u);
}

TEST_F(CudaLaunches, EachFailureIsNamed) {
    DriverTable table = fake_table(gpu);
    const auto with = [&](auto DriverTable::*function, auto otherwise) {
        DriverTable changed = table;
        changed.*function = otherwise;
        return changed;
    };
    const auto lost = [](auto...) { return CUDA_ERROR_ILLEGAL_ADDRESS; };
    static const unsigned char image[1] = {0};
    const auto code = [&](const DriverTable &changed, bool pinned, const char *word) {
        const Driver broken(changed);
        auto opened = Device::open(broken, 0, image);
        if (!opened) {
            EXPECT_NE(opened.error().message.find(word), std::string::npos)
                << opened.error().message;
            return opened.error().code;
        }
        auto pin = Pinning::pin(driver, object, pinned ? 8192 : 4096);
        auto moved = gather(**opened, memory, transfer, stream);
        auto back = scatter(**opened, memory, transfer, nullptr, stream);
        if (moved)
            moved = back;
        if (moved)
            moved = wait(**opened, stream);
        EXPECT_FALSE(moved);
        if (moved)
            return 0;
        EXPECT_NE(moved.error().message.find(word), std::string::npos) << moved.error().message;
        return moved.error().code;
    };
    EXPECT_EQ(
        code(with(&DriverTable::launch, lost), true, "cuLaunchKernel gave CUDA_ERROR_ILLEGAL"),
        EIO);
    EXPECT_EQ(code(with(&DriverTable::copy_to_host, lost), false, "gather"), EIO);
    EXPECT_EQ(code(with(&DriverTable::copy_to_device, lost), false, "scatter"), EIO);
    EXPECT_EQ(code(with(&DriverTable::synchronize, lost), true, "cuStreamSynchronize"), EIO);
    EXPECT_EQ(code(with(&DriverTable::push_context, lost), true, "cuCtxPushCurrent"), EIO);
    const auto no_device = [](CUcontext *, CUdevice) { return CUDA_ERROR_INVALID_DEVICE; };
    EXPECT_EQ(code(with(&DriverTable::retain_primary, no_device), true, "device 0"), ENODEV);
    const auto too_old = [](CUmodule *, const void *) {
        return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    };
    EXPECT_EQ(code(with(&DriverTable::load_module, too_old), true, "kernels"), ENOTSUP);
    const auto no_kernel = [](CUfunction *, CUmodule, const char *) {
        return CUDA_ERROR_INVALID_HANDLE;
    };
    EXPECT_EQ(code(with(&DriverTable::get_function, no_kernel), true, "maru_cuda_gather"), EINVAL);
}

}  // namespace
}  // namespace maru::cuda
