#include "server/evaluation/evaluation_pool.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "kernels/backend/devices.h"
#include "kernels/ops/registry.h"

namespace weir {
namespace {

class EvaluationPoolTest : public ::testing::Test {
 protected:
  std::unique_ptr<Engine> NewEngine() const {
    EngineOptions options;
    options.pinned_bytes = size_t{1} << 20;
    return *Engine::Create(MakeCpuDevice({.cpu_threads = 1}), registry_.get(),
                           options);
  }

  const std::unique_ptr<OpRegistry> registry_ = MakeOpRegistry({});
  const std::unique_ptr<Engine> engine_ = NewEngine();
  const std::unique_ptr<Engine> other_ = NewEngine();
  EvaluationPool pool_;
};

TEST_F(EvaluationPoolTest, WhatWasReturnedLastIsLentFirst) {
  EvaluationPool::Lease first = pool_.Lend(*engine_);
  EvaluationPool::Lease second = pool_.Lend(*engine_);
  Evaluation* const free[] = {first.get(), second.get()};
  EXPECT_NE(free[0], free[1]);
  first->request().label = "first";
  second.reset();
  first.reset();
  first = pool_.Lend(*engine_);
  EXPECT_EQ(first.get(), free[0]);
  EXPECT_EQ(first->request().label, "") << "of an earlier use";
  second = pool_.Lend(*engine_);
  EXPECT_EQ(second.get(), free[1]);
}

TEST_F(EvaluationPoolTest, EachEngineAndThreadHasItsOwn) {
  EvaluationPool::Lease lease = pool_.Lend(*engine_);
  const Evaluation* const free = lease.get();
  lease.reset();
  const EvaluationPool::Lease of_other = pool_.Lend(*other_);
  EXPECT_NE(of_other.get(), free);
  EXPECT_EQ(&of_other->engine(), other_.get());
  std::thread([&] {
    const EvaluationPool::Lease there = pool_.Lend(*engine_);
    EXPECT_NE(there.get(), free);
  }).join();
  EXPECT_EQ(pool_.Lend(*engine_).get(), free);
}

// A burst of graphs with long lists leaves none of them behind.
TEST_F(EvaluationPoolTest, OnlyThoseOfFewTensorsAreKept) {
  EvaluationPool::Lease free = pool_.Lend(*engine_);
  EvaluationPool::Lease few = pool_.Lend(*engine_);
  EvaluationPool::Lease many = pool_.Lend(*engine_);
  const Evaluation* const kept[] = {free.get(), few.get()};
  free.reset();
  few->request().inputs.resize(32);
  few->request().outputs.resize(32);
  few.reset();
  many->request().inputs.resize(33);
  many->request().outputs.resize(32);
  many.reset();
  few = pool_.Lend(*engine_);
  free = pool_.Lend(*engine_);
  EXPECT_EQ(few.get(), kept[1]);
  EXPECT_EQ(free.get(), kept[0]);
}

// After a burst, not so many as it had. An allocator may give what is new the
// place of what has gone; but its label has no room yet.
TEST_F(EvaluationPoolTest, OfABurstOnlySomeAreKept) {
  constexpr size_t kBurst = 300;
  constexpr size_t kKept = 256;
  constexpr size_t kRoom = 200;  // of a label that was long once
  std::vector<EvaluationPool::Lease> burst;
  for (size_t i = 0; i < kBurst; ++i) {
    burst.push_back(pool_.Lend(*engine_));
    ASSERT_LT(burst.back()->request().label.capacity(), kRoom);
    burst.back()->request().label.assign(kRoom, 'l');
  }
  burst.clear();
  size_t used_before = 0;
  for (size_t i = 0; i < kBurst; ++i) {
    burst.push_back(pool_.Lend(*engine_));
    if (burst.back()->request().label.capacity() >= kRoom) ++used_before;
  }
  EXPECT_EQ(used_before, kKept);
}

}  // namespace
}  // namespace weir
