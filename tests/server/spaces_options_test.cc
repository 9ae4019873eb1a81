#include "server/spaces_options.h"

#include <gtest/gtest.h>

#include <limits>

namespace weir {
namespace {

constexpr SpaceToken::Origin kOrigin = {.worker = 1, .start = 2};

TEST(SpacesOptionsTest, AreWhatTheFlagsSay) {
  ServerOptions options;
  options.space_lease = absl::Seconds(7);
  options.max_spaces = 100;
  options.tensor_bytes = 4000;
  options.space_tensors = 10;
  options.space_contexts = 20;
  options.space_timelines = 30;
  options.space_works = 40;
  options.space_sessions = 50;
  const SpacesOptions spaces = MakeSpacesOptions(options, 12'000, kOrigin);
  EXPECT_EQ(spaces.lease, 7'000'000'000);
  EXPECT_EQ(spaces.origin, kOrigin);
  EXPECT_EQ(spaces.space[Holding::kTensorBytes], 1000u)
      << "a quarter of one device's";
  EXPECT_EQ(spaces.identity[Holding::kTensorBytes], 4000u);
  EXPECT_EQ(spaces.server[Holding::kTensorBytes], 12'000u) << "of all devices";
  EXPECT_EQ(spaces.identity[Holding::kSpaces], 25u);
  EXPECT_EQ(spaces.server[Holding::kSpaces], 100u);
  const std::pair<Holding, uint64_t> counted[] = {{Holding::kTensors, 10},
                                                  {Holding::kContexts, 20},
                                                  {Holding::kTimelines, 30},
                                                  {Holding::kWorks, 40},
                                                  {Holding::kSessions, 50}};
  for (const auto& [what, amount] : counted) {
    EXPECT_EQ(spaces.space[what], amount);
    EXPECT_EQ(spaces.identity[what], 4 * amount);
    EXPECT_EQ(spaces.server[what], 16 * amount);
  }
}

// A server whose pinned memory waits with works answers nobody else.
TEST(SpacesOptionsTest, InputsLeaveHalfOfTheHostsBytesToOthers) {
  ServerOptions options;
  options.host_bytes = 8000;
  const SpacesOptions spaces = MakeSpacesOptions(options, 1, kOrigin);
  EXPECT_EQ(spaces.space[Holding::kInputBytes], 1000u);
  EXPECT_EQ(spaces.identity[Holding::kInputBytes], 4000u);
  EXPECT_EQ(spaces.server[Holding::kInputBytes], 4000u);
}

TEST(SpacesOptionsTest, BytesOfOneSpaceMayBeGiven) {
  ServerOptions options;
  options.space_tensor_bytes = 5000;
  const SpacesOptions spaces = MakeSpacesOptions(options, 12'000, kOrigin);
  EXPECT_EQ(spaces.space[Holding::kTensorBytes], 5000u);
  EXPECT_EQ(spaces.identity[Holding::kTensorBytes], 20'000u);
}

TEST(SpacesOptionsTest, AnIdentityMayHaveOneSpaceAtLeast) {
  ServerOptions options;
  options.max_spaces = 1;
  EXPECT_EQ(MakeSpacesOptions(options, 1, kOrigin).identity[Holding::kSpaces],
            1u);
}

TEST(SpacesOptionsTest, NothingOverflows) {
  ServerOptions options;
  options.space_tensors = std::numeric_limits<size_t>::max() / 8;
  const SpacesOptions spaces = MakeSpacesOptions(options, 1, kOrigin);
  EXPECT_EQ(spaces.identity[Holding::kTensors],
            4 * (std::numeric_limits<uint64_t>::max() / 8));
  EXPECT_EQ(spaces.server[Holding::kTensors],
            std::numeric_limits<uint64_t>::max());
}

}  // namespace
}  // namespace weir
