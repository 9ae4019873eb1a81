#include "server/spaces/space.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "kernels/base/error_info.h"

namespace weir {
namespace {

constexpr Nanos kOpened = 1'000;
constexpr Nanos kLease = 500;

Amounts Everything(uint64_t amount) {
  Amounts amounts;
  for (size_t i = 0; i < kHoldings; ++i) {
    amounts[static_cast<Holding>(i)] = amount;
  }
  return amounts;
}

class SpaceTest : public ::testing::Test {
 protected:
  static std::shared_ptr<Space> NewSpace() {
    Space::Options options;
    options.id = 3;
    options.token = SpaceToken::New({});
    options.label = "a label";
    options.identity = "CN=somebody";
    options.lease = kLease;
    options.now = kOpened;
    options.account = Account::Create("the space", Everything(10), nullptr);
    return std::make_shared<Space>(std::move(options));
  }
  // Of no device: nothing runs.
  static std::shared_ptr<KeptTensor> NewTensor(Space& space) {
    return std::make_shared<KeptTensor>(
        nullptr, DType::kFloat, SymbolicShape(),
        *space.account().Take(Holding::kTensors));
  }
  static std::shared_ptr<KeptWork> PutWork(Space& space, uint64_t number) {
    auto work =
        std::make_shared<KeptWork>(nullptr, std::make_shared<Work>(), Point());
    auto claim = space.works().Take(number);
    EXPECT_TRUE(claim.ok()) << claim.status();
    EXPECT_TRUE(claim->Fill(work));
    return work;
  }

  const std::shared_ptr<Space> space_ = NewSpace();
};

TEST_F(SpaceTest, ItsLeaseRunsWhileNobodyUsesIt) {
  EXPECT_EQ(space_->idle(kOpened + 100), 100);
  EXPECT_FALSE(space_->Expired(kOpened + kLease));
  EXPECT_TRUE(space_->Expired(kOpened + kLease + 1));
  ASSERT_TRUE(space_->BeginUse());
  ASSERT_TRUE(space_->BeginUse());
  constexpr Nanos kLater = 1'000'000;
  EXPECT_EQ(space_->idle(kLater), 0);
  space_->EndUse(kLater);
  EXPECT_FALSE(space_->Expired(2 * kLater)) << "one uses it yet";
  space_->EndUse(kLater + 10);
  EXPECT_EQ(space_->idle(kLater + 30), 20);
  EXPECT_EQ(space_->idle(kLater), 0) << "a time that was read before";
  EXPECT_FALSE(space_->Expired(kLater + 10 + kLease));
  EXPECT_TRUE(space_->Expired(kLater + 10 + kLease + 1));
}

TEST_F(SpaceTest, AUseEndsWithItsObject) {
  ASSERT_TRUE(space_->BeginUse());
  const Nanos before = NowNanos();
  {
    SpaceUse use(space_);
    SpaceUse moved = std::move(use);
    EXPECT_FALSE(use);
    EXPECT_EQ(moved->id(), 3u);
    EXPECT_EQ(space_->idle(NowNanos() + 10 * kLease), 0);
  }
  EXPECT_TRUE(space_->Expired(NowNanos() + kLease + 1));
  EXPECT_FALSE(space_->Expired(before)) << "it was used after that";
}

TEST_F(SpaceTest, OnceItIsClosedNobodyUsesItAndItsTablesAreEmpty) {
  PutWork(*space_, 1);
  ASSERT_TRUE(space_->tensors().Take(1)->Fill(NewTensor(*space_)));
  ASSERT_TRUE(space_->contexts().Take(1)->Fill(std::make_shared<KeptContext>(
      /*engine=*/nullptr, /*context=*/nullptr, ContextSettings(),
      *space_->account().Take(Holding::kContexts))));
  EXPECT_EQ(space_->account().held(Holding::kTensors), 1u);
  EXPECT_EQ(space_->account().held(Holding::kContexts), 1u);
  space_->Close();
  EXPECT_FALSE(space_->BeginUse());
  EXPECT_EQ(Reason(space_->works().Find(1).status()), "WORK_NOT_FOUND");
  EXPECT_EQ(Reason(space_->tensors().Find(1).status()), "TENSOR_NOT_FOUND");
  EXPECT_EQ(Reason(space_->contexts().Find(1).status()), "CONTEXT_NOT_FOUND");
  EXPECT_EQ(Reason(space_->works().Take(2).status()), "SPACE_NOT_FOUND");
  EXPECT_EQ(space_->account().held(Holding::kTensors), 0u);
  EXPECT_EQ(space_->account().held(Holding::kContexts), 0u);
  space_->Close();
}

TEST_F(SpaceTest, ItsTimelinesFailAsItIsClosed) {
  const auto timeline = std::make_shared<Timeline>("the caller's");
  auto kept = std::make_shared<KeptTimeline>();
  kept->timeline = timeline;
  ASSERT_TRUE(space_->timelines().Take(5)->Fill(std::move(kept)));
  ASSERT_TRUE(timeline->Advance(1).ok());
  std::optional<absl::Status> told;
  timeline->OnReached(2, [&](absl::Status status) { told = status; });
  space_->Close();
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(Reason(*told), "SPACE_CLOSED");
  EXPECT_EQ(Reason(space_->timelines().Find(5).status()), "TIMELINE_NOT_FOUND");
}

TEST_F(SpaceTest, TheNumberOfAFailedTensorIsFree) {
  const auto tensor = NewTensor(*space_);
  ASSERT_TRUE(space_->TakeTensor(4)->Fill(tensor));
  EXPECT_EQ(Reason(space_->TakeTensor(4).status()), "NUMBER_IN_USE");
  EXPECT_EQ(space_->TakeTensor(0).status().code(),
            absl::StatusCode::kInvalidArgument);
  tensor->Failed(absl::DataLossError("broken"));
  EXPECT_TRUE(space_->tensors().Find(4).ok()) << "its failure can be read";
  {
    const auto claim = space_->TakeTensor(4);
    ASSERT_TRUE(claim.ok()) << claim.status();
    EXPECT_EQ(Reason(space_->TakeTensor(4).status()), "NUMBER_IN_USE");
  }
  EXPECT_FALSE(space_->tensors().Find(4).ok());
}

TEST_F(SpaceTest, OfWorksThatAreDoneTheOldestAreForgotten) {
  const Work ended;
  for (uint64_t number = 1; number <= Space::kDoneWorksKept; ++number) {
    const auto work = PutWork(*space_, number);
    work->Ended(ended);
    space_->NoteDone(number, work);
  }
  EXPECT_TRUE(space_->works().Find(1).ok());
  const auto running = PutWork(*space_, Space::kDoneWorksKept + 1);
  EXPECT_TRUE(space_->works().Find(1).ok());
  running->Ended(ended);
  space_->NoteDone(Space::kDoneWorksKept + 1, running);
  EXPECT_EQ(Reason(space_->works().Find(1).status()), "WORK_NOT_FOUND");
  EXPECT_TRUE(space_->works().Find(2).ok());
}

// Its caller freed the number, and another work has it.
TEST_F(SpaceTest, AForgottenWorkLeavesItsNumberToWhoHasItNow) {
  const Work ended;
  const auto first = PutWork(*space_, 1);
  space_->NoteDone(1, first);
  ASSERT_TRUE(space_->works().Remove(1).ok());
  const auto second = PutWork(*space_, 1);
  for (uint64_t number = 2; number <= Space::kDoneWorksKept + 1; ++number) {
    space_->NoteDone(number, PutWork(*space_, number));
  }
  EXPECT_EQ(*space_->works().Find(1), second);
}

TEST_F(SpaceTest, AKeptWorkTellsHowItEndedWithoutHoldingIt) {
  auto work = std::make_shared<Work>();
  const std::weak_ptr<Work> seen = work;
  KeptWork kept(nullptr, work, {std::make_shared<Timeline>("end"), 1});
  EXPECT_EQ(kept.state(), WorkState::kNotEnqueued);
  EXPECT_FALSE(kept.end().has_value());
  kept.Cancel();
  EXPECT_TRUE(work->cancelled());
  kept.Ended(*work);
  work = nullptr;
  EXPECT_TRUE(seen.expired());
  ASSERT_TRUE(kept.end().has_value());
  EXPECT_EQ(kept.state(), kept.end()->report.state);
  EXPECT_TRUE(kept.ended().is_null());
  kept.Cancel();
}

}  // namespace
}  // namespace weir
