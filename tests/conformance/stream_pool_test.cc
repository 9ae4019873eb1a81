#include "kernels/device/stream_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/timer_queue.h"
#include "tests/conformance/device_conformance.h"

namespace weir {
namespace {

class StreamPoolConformance : public DeviceConformance {
 protected:
  std::unique_ptr<StreamPool> MakePool(const StreamPoolOptions& options) {
    auto pool = StreamPool::Create(&device(), &timers_, options);
    EXPECT_TRUE(pool.ok()) << pool.status();
    return *std::move(pool);
  }

  TimerQueue timers_;
};

TEST_P(StreamPoolConformance, AHeldLaneDrainsWhileOthersServe) {
  StreamPoolOptions options;
  options.max = 2;
  auto pool = MakePool(options);
  auto gate = MakeDeviceGate();
  TestTask blocked([&](Stream& stream) { return gate->Hold(stream); });
  uint64_t held_lane;
  {
    auto lease = *pool->TryAcquire();
    held_lane = lease.lane()->number();
    lease.stream().Enqueue(&blocked);
  }
  EXPECT_EQ(pool->stats().draining, 1u);
  for (int i = 0; i < 5; ++i) {
    auto lease = *pool->TryAcquire();
    EXPECT_NE(lease.lane()->number(), held_lane);
    EXPECT_TRUE(RunOn(lease.stream(), nullptr).ok());
  }
  gate->Open();
  blocked.Wait();
  EXPECT_EQ(pool->stats().draining, 0u);
  EXPECT_EQ(pool->stats().idle, 2u);
}

TEST_P(StreamPoolConformance, TheArenaIsDeviceMemory) {
  auto pool = MakePool({});
  auto lease = *pool->TryAcquire();
  auto arena = lease.lane()->Arena(100000);
  ASSERT_TRUE(arena.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(*arena) % 256, 0u);
  EXPECT_TRUE(RunOn(lease.stream(), [&](Stream& stream) {
                return stream.Fill(*arena, 1, 100000);
              }).ok());
}

// Owners come and go on many threads, some leave work behind, lanes are
// trimmed; at every moment the equation holds and a lane has one owner, who
// finds it idle.
TEST_P(StreamPoolConformance, HoldsItsPromisesUnderLoad) {
  constexpr int kThreads = 6;
  constexpr int kLeases = 400;
  StreamPoolOptions options;
  options.reserved = 1;
  options.max = 4;
  options.idle_ttl = absl::Microseconds(50);
  auto pool = MakePool(options);
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::thread watcher([&] {
    while (!stop) {
      const StreamPoolStats stats = pool->stats();
      if (stats.created() != stats.created_total - stats.destroyed_total ||
          stats.created() > stats.max || stats.leased > stats.max) {
        ++wrong;
      }
      pool->Trim(1);
      std::this_thread::yield();
    }
  });
  std::mutex mu;
  std::set<const Lane*> owned;
  std::vector<std::thread> owners;
  for (int t = 0; t < kThreads; ++t) {
    owners.emplace_back([&, t] {
      std::vector<std::unique_ptr<TestTask>> tasks;
      for (int i = 0; i < kLeases; ++i) {
        Event arrived;
        absl::StatusOr<StreamLease> lease = absl::UnknownError("");
        pool->Acquire(kNoDeadline, [&](absl::StatusOr<StreamLease> given) {
          lease = std::move(given);
          arrived.Set();
        });
        arrived.Wait();
        if (!lease.ok() || !lease->stream().idle()) {
          ++wrong;
          continue;
        }
        const Lane* const lane = lease->lane();
        {
          std::lock_guard<std::mutex> lock(mu);
          if (!owned.insert(lane).second) ++wrong;
        }
        tasks.push_back(std::make_unique<TestTask>([t, i](Stream&) {
          return i % 5 == t % 5 ? absl::InternalError("bad") : absl::OkStatus();
        }));
        lease->stream().Enqueue(tasks.back().get());
        if (i % 3 == 0) tasks.back()->Wait();
        if (i % 5 == 0) lease->MarkSuspect();
        {
          std::lock_guard<std::mutex> lock(mu);
          owned.erase(lane);
        }
      }
      for (auto& task : tasks) {
        task->Wait();
        if (task->completions() != 1) ++wrong;
      }
    });
  }
  for (std::thread& owner : owners) owner.join();
  stop = true;
  watcher.join();
  EXPECT_EQ(wrong, 0);
  const StreamPoolStats stats = pool->stats();
  EXPECT_EQ(stats.leases_total, uint64_t{kThreads} * kLeases);
  EXPECT_EQ(stats.leased, 0u);
  EXPECT_EQ(stats.waiting, 0u);
}

WEIR_INSTANTIATE_CONFORMANCE(StreamPoolConformance);

}  // namespace
}  // namespace weir
