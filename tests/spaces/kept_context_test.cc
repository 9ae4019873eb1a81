#include "server/spaces/kept_context.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>

#include "kernels/base/error_info.h"
#include "server/spaces/space.h"
#include "tests/base/eventually.h"
#include "tests/spaces/space_fixture.h"

namespace weir {
namespace {

constexpr Nanos kTtl = 100;

class KeptContextTest : public SpaceEngineTest {
 protected:
  std::shared_ptr<KeptContext> NewContext(Nanos ttl) {
    ContextSettings settings;
    settings.ttl = ttl;
    return std::make_shared<KeptContext>(engine_.get(),
                                         EvalContext::Create(engine_.get(), {}),
                                         settings, Account::Share());
  }
};

TEST_F(KeptContextTest, ItsTimeCountsFromWhenItWasSeenUnused) {
  const auto kept = NewContext(kTtl);
  EXPECT_FALSE(kept->Expired(1000)) << "nobody has looked before";
  EXPECT_FALSE(kept->Expired(1000 + kTtl - 1));
  EXPECT_TRUE(kept->Expired(1000 + kTtl));
  kept->Touch(2000);
  EXPECT_FALSE(kept->Expired(2000 + kTtl - 1));
  EXPECT_TRUE(kept->Expired(2000 + kTtl));
}

TEST_F(KeptContextTest, WhoeverIsInsideUsesIt) {
  const auto kept = NewContext(kTtl);
  ASSERT_FALSE(kept->Expired(0));
  std::optional<Activation> inside = *kept->context()->Enter(NewHandlerId());
  EXPECT_FALSE(kept->Expired(10 * kTtl));
  inside.reset();
  EXPECT_FALSE(kept->Expired(20 * kTtl));
  EXPECT_FALSE(kept->Expired(21 * kTtl - 1));
  EXPECT_TRUE(kept->Expired(21 * kTtl));
}

TEST_F(KeptContextTest, AWorkThatIsNotDoneUsesIt) {
  Spaces spaces(TestSpaces());
  auto space = spaces.Open(WishOf("CN=me"), NowNanos(), 0);
  ASSERT_TRUE(space.ok()) << space.status();
  const auto kept = NewContext(kTtl);
  TestCaller caller;
  const auto work = NewWork(*space, held_);
  work->request().inputs[0] = Floats(values_);
  ASSERT_TRUE(SubmitIn(kept->context(), work, caller).ok());
  hold_.WaitUntilHeld();
  EXPECT_FALSE(kept->Expired(0));
  EXPECT_FALSE(kept->Expired(10 * kTtl));
  hold_.Open();
  caller.ready.Wait();
  // Its place ends a moment after its caller was told.
  ASSERT_TRUE(
      testing::Eventually([&] { return kept->context()->unfinished() == 0; }));
  EXPECT_FALSE(kept->Expired(20 * kTtl));
  EXPECT_TRUE(kept->Expired(21 * kTtl));
}

TEST_F(KeptContextTest, WithoutATtlItStays) {
  const auto kept = NewContext(0);
  EXPECT_FALSE(kept->Expired(0));
  EXPECT_FALSE(kept->Expired(kNoDeadline - 1));
  ContextSettings settings = kept->settings();
  settings.ttl = kTtl;
  kept->set_settings(settings);
  EXPECT_FALSE(kept->Expired(1000));
  EXPECT_TRUE(kept->Expired(1000 + kTtl));
}

// Its number says what became of it, until it is given to another one.
TEST_F(KeptContextTest, ASpaceClosesItAndTellsWhoAsks) {
  Spaces spaces(TestSpaces());
  auto use = spaces.Open(WishOf("CN=me"), NowNanos(), 0);
  ASSERT_TRUE(use.ok()) << use.status();
  Space& space = **use;
  ASSERT_TRUE(space.TakeContext(1)->Fill(NewContext(kTtl)));
  ASSERT_TRUE(space.TakeContext(2)->Fill(NewContext(0)));
  EXPECT_TRUE(spaces.CloseExpiredContexts(1000).empty());
  const auto ended = spaces.CloseExpiredContexts(1000 + kTtl);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].space->id(), space.id());
  EXPECT_EQ(ended[0].context.number, 1u);
  EXPECT_EQ(ended[0].context.ttl, kTtl);
  const absl::Status gone = space.FindContext(1, 0).status();
  EXPECT_EQ(Reason(gone), "CONTEXT_NOT_FOUND");
  EXPECT_NE(gone.message().find("100ns"), absl::string_view::npos) << gone;
  EXPECT_TRUE(space.FindContext(2, 0).ok());
  EXPECT_EQ(space.FindContext(3, 0).status().message().find("ttl"),
            absl::string_view::npos);
  ASSERT_TRUE(space.TakeContext(1)->Fill(NewContext(0)));
  EXPECT_TRUE(space.contexts().Remove(1).ok());
  EXPECT_EQ(space.FindContext(1, 0).status().message().find("ttl"),
            absl::string_view::npos);
}

// Whoever has found it may be on the way in, or stand in line.
TEST_F(KeptContextTest, WhoeverHasFoundItUsesIt) {
  Spaces spaces(TestSpaces());
  auto use = spaces.Open(WishOf("CN=me"), NowNanos(), 0);
  ASSERT_TRUE(use.ok()) << use.status();
  Space& space = **use;
  ASSERT_TRUE(space.TakeContext(1)->Fill(NewContext(kTtl)));
  EXPECT_TRUE(spaces.CloseExpiredContexts(0).empty());
  auto found = space.FindContext(1, 0);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_TRUE(spaces.CloseExpiredContexts(10 * kTtl).empty());
  found = absl::UnknownError("let go of");
  EXPECT_TRUE(spaces.CloseExpiredContexts(11 * kTtl - 1).empty());
  EXPECT_EQ(spaces.CloseExpiredContexts(11 * kTtl).size(), 1u);
}

}  // namespace
}  // namespace weir
