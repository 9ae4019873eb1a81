#include "gtest/gtest.h"
#include "kernels/backend/devices.h"
#include "kernels/tensor/memory_pool.h"
#include "kernels/tensor/tensor.h"

namespace weir {
namespace {

class StorageTest : public testing::Test {
 protected:
  StorageTest()
      : device_(MakeCpuDevice({.cpu_threads = 1})),
        pool_(device_.get(), 1 << 20),
        storage_(pool_.Allocate(64).value()) {}

  static std::shared_ptr<Timeline> NewTimeline() {
    return std::make_shared<Timeline>("test");
  }

  std::unique_ptr<Device> device_;
  MemoryPool pool_;
  std::shared_ptr<TensorStorage> storage_;
};

TEST_F(StorageTest, KeepsTheNewestPointOfEachReader) {
  const auto a = NewTimeline();
  const auto b = NewTimeline();
  EXPECT_TRUE(storage_->Uses().empty());
  storage_->AddReader({a, 2});
  storage_->AddReader({a, 1});
  storage_->AddReader({b, 7});
  storage_->AddReader({});
  EXPECT_EQ(storage_->Uses(), (std::vector<Point>{{a, 2}, {b, 7}}));
  storage_->AddReader({a, 5});
  EXPECT_EQ(storage_->Uses(), (std::vector<Point>{{a, 5}, {b, 7}}));
}

TEST_F(StorageTest, AWriterReplacesAllFormerUses) {
  const auto a = NewTimeline();
  storage_->SetWriter({a, 1});
  storage_->AddReader({NewTimeline(), 3});
  EXPECT_EQ(storage_->Uses().size(), 2u);
  storage_->SetWriter({a, 2});
  EXPECT_EQ(storage_->Uses(), (std::vector<Point>{{a, 2}}));
  EXPECT_EQ(storage_->writer(), (Point{a, 2}));
}

TEST_F(StorageTest, RemembersWhatBecameOfItsWriter) {
  const auto a = NewTimeline();
  storage_->SetWriter({a, 1});
  ASSERT_TRUE(a->Advance(1).ok());
  for (uint64_t value = 2; value < 2000; ++value) {
    ASSERT_TRUE(a->Advance(value, absl::InternalError("x")).ok());
  }
  EXPECT_EQ(storage_->writer().Outcome(), absl::OkStatus());
}

TEST_F(StorageTest, ReadersAlreadyReachedDoNotPileUp) {
  for (int i = 0; i < 1000; ++i) {
    const auto timeline = NewTimeline();
    ASSERT_TRUE(timeline->Advance(1).ok());
    storage_->AddReader({timeline, 1});
  }
  EXPECT_LE(storage_->Uses().size(), 8u);
}

TEST_F(StorageTest, HandlesShareTheMemory) {
  const Tensor tensor({DType::kFloat, {4}, ""}, storage_, 16);
  const Tensor copy = tensor;
  EXPECT_TRUE(copy.valid());
  EXPECT_FALSE(Tensor().valid());
  EXPECT_EQ(copy.data(), storage_->data() + 16);
  EXPECT_EQ(&copy.storage(), &tensor.storage());
  EXPECT_EQ(copy.spec().dims, (Dims{4}));
}

}  // namespace
}  // namespace weir
