#include "server/spaces/stream_slots.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "kernels/base/error_info.h"
#include "kernels/eval/engine.h"
#include "tests/base/eventually.h"
#include "tests/spaces/space_fixture.h"

namespace weir {
namespace {

using testing::Eventually;

constexpr Nanos kHour = Nanos{3600} * 1'000'000'000;

class StreamSlotsTest : public SpaceEngineTest {
 protected:
  void SetUp() override {
    SpaceEngineTest::SetUp();
    stream_ = NamedStream::Create(engine_.get(),
                                  *engine_->streams().TryAcquire(), {});
    slots_ = StreamSlots::Create(&engine_->timers());
  }

  absl::Status Reserve(uint64_t slot, Nanos expires = NowNanos() + kHour) {
    return slots_->Reserve(slot, *stream_->Take(/*reserved=*/true), expires);
  }
  // Whether all that has a place is over.
  bool AllOver() const { return stream_->Now().Outcome().has_value(); }

  void TearDown() override {
    slots_ = nullptr;
    stream_ = nullptr;
    SpaceEngineTest::TearDown();
  }

  std::shared_ptr<NamedStream> stream_;
  std::shared_ptr<StreamSlots> slots_;
};

TEST_F(StreamSlotsTest, ASlotIsFilledOnce) {
  ASSERT_TRUE(Reserve(7).ok());
  auto place = slots_->Fill(7);
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->number(), 1u);
  EXPECT_FALSE(AllOver());
  EXPECT_EQ(Reason(slots_->Fill(7).status()), "SLOT_FILLED");
  EXPECT_EQ(Reason(slots_->Fill(8).status()), "SLOT_NOT_FOUND");
  place->End();
  EXPECT_TRUE(AllOver());
}

TEST_F(StreamSlotsTest, ANumberIsFreeOnceItsSlotIsOver) {
  ASSERT_TRUE(Reserve(7).ok());
  EXPECT_EQ(Reason(Reserve(7)), "NUMBER_IN_USE");
  EXPECT_EQ(Reserve(0).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(slots_->Fill(7).ok());
  ASSERT_TRUE(Reserve(7).ok());
  EXPECT_TRUE(slots_->Fill(7).ok());
  EXPECT_TRUE(AllOver());
}

TEST_F(StreamSlotsTest, AnUnusedSlotIsGivenUp) {
  ASSERT_TRUE(Reserve(7, NowNanos()).ok());
  EXPECT_TRUE(Eventually([&] { return AllOver(); }));
  EXPECT_EQ(Reason(slots_->Fill(7).status()), "SLOT_EXPIRED");
}

TEST_F(StreamSlotsTest, WhatIsOverIsForgottenInTheEnd) {
  for (uint64_t slot = 1; slot <= StreamSlots::kOverKept + 1; ++slot) {
    ASSERT_TRUE(Reserve(slot).ok());
    ASSERT_TRUE(slots_->Fill(slot).ok());
  }
  EXPECT_EQ(Reason(slots_->Fill(1).status()), "SLOT_NOT_FOUND");
  EXPECT_EQ(Reason(slots_->Fill(2).status()), "SLOT_FILLED");
}

TEST_F(StreamSlotsTest, AtItsEndNothingIsReserved) {
  ASSERT_TRUE(Reserve(7).ok());
  slots_->Close();
  EXPECT_TRUE(AllOver());
  EXPECT_EQ(Reserve(8).code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(AllOver());
}

}  // namespace
}  // namespace weir
