#include "kernels/device/stream_pools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "tests/device/fault_injecting_device.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class StreamPoolsTest : public ::testing::Test {
 protected:
  StreamPoolsTest() { device_.set_priorities(/*greatest=*/-2, /*least=*/0); }

  std::unique_ptr<StreamPools> Make(const StreamPoolOptions& options) {
    auto pools = StreamPools::Create(&device_, &timers_, options, {});
    EXPECT_TRUE(pools.ok()) << pools.status();
    return *std::move(pools);
  }

  static std::vector<std::string> Names(const StreamPools& pools) {
    std::vector<std::string> names;
    for (const StreamPool* pool : pools.all()) {
      names.push_back(pool->options().name);
    }
    return names;
  }

  FaultInjectingDevice device_{
      MakeCpuDevice({.cpu_threads = 2, .cache_dir = {}})};
  TimerQueue timers_;
};

TEST_F(StreamPoolsTest, APriorityHasItsPoolOnceSomebodyAsksForIt) {
  auto pools = Make({.reserved = 1, .max = 16});
  EXPECT_THAT(Names(*pools), ElementsAre("cpu/priority 0"));
  EXPECT_EQ(*pools->OfPriority(0), &pools->main());
  StreamPool* const urgent = *pools->OfPriority(-2);
  EXPECT_EQ(*pools->OfPriority(-2), urgent);
  EXPECT_THAT(Names(*pools), ElementsAre("cpu/priority 0", "cpu/priority -2"));
  EXPECT_EQ(urgent->stats().created(), 0u);
  EXPECT_EQ((*urgent->TryAcquire()).stream().priority(), -2);
  EXPECT_EQ((*pools->main().TryAcquire()).stream().priority(), 0);
}

TEST_F(StreamPoolsTest, APriorityThatTheDeviceDoesNotHaveIsRefused) {
  auto pools = Make({.max = 16});
  for (const int priority : {-3, 1, 1000}) {
    const absl::Status status = pools->OfPriority(priority).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("priorities -2 (most urgent) to 0"));
    EXPECT_EQ(pools->SetServerDefault(priority).status(), status);
  }
  EXPECT_THAT(Names(*pools), ElementsAre("cpu/priority 0"));
}

TEST_F(StreamPoolsTest, AllPoolsTogetherAreBounded) {
  auto pools = Make({.max = 16, .most = 64});
  EXPECT_EQ(pools->max_lanes(), 16u);
  StreamPool* const urgent = *pools->OfPriority(-1);
  EXPECT_EQ(urgent->stats().max, 4u);
  EXPECT_EQ(urgent->most_max(), 16u);
  ASSERT_TRUE(pools->ServerDefault().ok());
  EXPECT_EQ(pools->max_lanes(), 16u + 4 + 1);
  EXPECT_EQ(pools->SetMax(pools->main(), 60), absl::OkStatus());
  EXPECT_EQ(pools->SetMax(*urgent, 2), absl::OkStatus());
  EXPECT_FALSE(pools->SetMax(*urgent, 17).ok());
  EXPECT_EQ(pools->max_lanes(), 60u + 2 + 1);
  EXPECT_EQ(pools->stats().max, pools->max_lanes());
  EXPECT_EQ(pools->most_lanes(), 64u + 2 * 16 + 3);
}

TEST_F(StreamPoolsTest, TheArenasOfAllPoolsHaveOneBound) {
  auto pools = Make({.max = 4, .max_arena_bytes = size_t{1} << 20});
  auto plain = *pools->main().TryAcquire();
  auto urgent = *(*pools->OfPriority(-1))->TryAcquire();
  ASSERT_TRUE(plain.lane()->Arena(size_t{500} << 10).ok());
  EXPECT_EQ(Reason(urgent.lane()->Arena(size_t{600} << 10).status()),
            "DEVICE_MEMORY_EXHAUSTED");
  EXPECT_TRUE(urgent.lane()->Arena(size_t{500} << 10).ok());
  EXPECT_EQ(pools->stats().arena_bytes,
            pools->main().stats().arena_bytes +
                (*pools->OfPriority(-1))->stats().arena_bytes);
}

TEST_F(StreamPoolsTest, TheServersDefaultStreamIsOneLane) {
  auto pools = Make({.max = 4});
  const auto first = pools->ServerDefault();
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->version, 1u);
  EXPECT_EQ(first->pool->options().name, "cpu/default, priority 0");
  EXPECT_EQ(first->pool->most_max(), 1u);
  auto lease = *first->pool->TryAcquire();
  EXPECT_FALSE(first->pool->TryAcquire().ok());
  // Others go on while somebody has it.
  EXPECT_TRUE(pools->main().TryAcquire().ok());
}

TEST_F(StreamPoolsTest, AnotherDefaultIsForThoseWhoComeLater) {
  auto pools = Make({.max = 4});
  StreamPool* const before = pools->ServerDefault()->pool;
  auto lease = *before->TryAcquire();
  const auto changed = pools->SetServerDefault(-1);
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_EQ(changed->version, 2u);
  EXPECT_NE(changed->pool, before);
  EXPECT_EQ(pools->ServerDefault()->pool, changed->pool);
  EXPECT_EQ((*changed->pool->TryAcquire()).stream().priority(), -1);
  EXPECT_EQ(pools->SetServerDefault(-1)->version, 2u);
  // The one of before is there again, and as it was.
  EXPECT_EQ(pools->SetServerDefault(0)->version, 3u);
  EXPECT_EQ(pools->ServerDefault()->pool, before);
  EXPECT_FALSE(before->TryAcquire().ok());
}

TEST_F(StreamPoolsTest, APoolIsFoundByItsName) {
  auto pools = Make({.max = 4});
  StreamPool* const urgent = *pools->OfPriority(-1);
  EXPECT_EQ(*pools->Find("cpu/priority -1"), urgent);
  const absl::Status none = pools->Find("cpu/priority -2").status();
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Reason(none), "POOL_NOT_FOUND");
  EXPECT_THAT(std::string(none.message()),
              HasSubstr("there are \"cpu/priority 0\", \"cpu/priority -1\""));
}

TEST_F(StreamPoolsTest, AfterStopNobodyGetsALane) {
  auto pools = Make({.max = 4});
  ASSERT_TRUE(pools->OfPriority(-1).ok());
  pools->Stop();
  for (const int priority : {0, -1, -2}) {
    EXPECT_EQ((*pools->OfPriority(priority))->TryAcquire().status().code(),
              absl::StatusCode::kCancelled);
  }
}

}  // namespace
}  // namespace weir
