// Parts of the CUDA backend that live on the host alone, without a GPU: what
// opens libraries, keeps staging, and bounds decoders.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "kernels/device/cuda/host_scratch.h"
#include "kernels/device/cuda/in_flight_pool.h"
#include "kernels/device/cuda/nvjpeg.h"
#include "kernels/device/cuda/opened_once.h"
#include "kernels/device/cuda/record_slab.h"
#include "kernels/device/cuda/staged_copy.h"
#include "tests/base/event.h"
#include "tests/base/eventually.h"

namespace weir::cuda {
namespace {

constexpr Nanos kLater = std::numeric_limits<Nanos>::max();

// Waits for nothing that is not there; notes what it would have waited for.
absl::Status Note(Stream::Look look, Awaited* noted) {
  const absl::StatusOr<Awaited> seen = look();
  if (!seen.ok()) return seen.status();
  *noted = *seen;
  return *seen == Awaited::kNothing ? absl::OkStatus()
                                    : absl::DeadlineExceededError("too late");
}

absl::Status OneLook(Stream::Look look) {
  Awaited unused;
  return Note(look, &unused);
}

// Looks until it is there.
absl::Status Patient(Stream::Look look) {
  absl::StatusOr<Awaited> seen = look();
  while (seen.ok() && *seen != Awaited::kNothing) {
    std::this_thread::yield();
    seen = look();
  }
  return seen.status();
}

// -- RecordSlab ---------------------------------------------------------------

// Blocks of the host's memory.
class HostRecords {
 public:
  RecordSlab::Memory Memory() {
    return {[this]() -> absl::StatusOr<RecordSlab::Block> {
              if (before_making) before_making();
              auto& block =
                  blocks.emplace_back(std::make_unique<CompletionRecord[]>(
                      RecordSlab::kRecordsPerBlock));
              return RecordSlab::Block{block.get(), block.get(), nullptr};
            },
            [this](const RecordSlab::Block&) { ++freed; }};
  }

  std::function<void()> before_making;
  std::vector<std::unique_ptr<CompletionRecord[]>> blocks;
  size_t freed = 0;
};

std::shared_ptr<Timeline> NewTimeline() {
  return std::make_shared<Timeline>("test", nullptr);
}

TEST(RecordSlabTest, ARecordServesAgainOnceAllBeforeItsReleaseIsDone) {
  HostRecords memory;
  {
    RecordSlab slab(memory.Memory());
    const auto kept = NewTimeline();
    std::atomic<uint64_t> sequence = 1;
    ASSERT_TRUE(slab.Acquire(kept).ok());
    slab.SetLastSequence(kept.get(), &sequence);
    const auto gone = NewTimeline();
    const auto record = slab.Acquire(gone);
    ASSERT_TRUE(record.ok());
    record->host->sequence.store(7);
    record->host->mark.store(3);
    ASSERT_TRUE(slab.Find(gone.get()).has_value());
    EXPECT_EQ(slab.Find(gone.get())->host, record->host);
    slab.Release(gone.get());
    EXPECT_FALSE(slab.Find(gone.get()).has_value());
    // All others are taken, and one more.
    std::vector<std::shared_ptr<Timeline>> others;
    for (size_t i = 1; i < RecordSlab::kRecordsPerBlock; ++i) {
      others.push_back(NewTimeline());
      const auto other = slab.Acquire(others.back());
      ASSERT_TRUE(other.ok());
      EXPECT_NE(other->host, record->host);
    }
    EXPECT_EQ(memory.blocks.size(), 2u);
    ASSERT_TRUE(kept->Advance(1).ok());
    bool again = false;
    for (size_t i = 0; i < RecordSlab::kRecordsPerBlock; ++i) {
      others.push_back(NewTimeline());
      again |= slab.Acquire(others.back())->host == record->host;
    }
    EXPECT_TRUE(again);
    // What its last stream reached, the next one did not.
    EXPECT_EQ(record->host->sequence.load(), 0u);
    EXPECT_EQ(record->host->mark.load(), 0u);
  }
  EXPECT_EQ(memory.freed, memory.blocks.size());
}

// The driver may take as long as what runs.
TEST(RecordSlabTest, WhatIsMadeHoldsUpNobodyWhoLooks) {
  HostRecords memory;
  RecordSlab slab(memory.Memory());
  const auto there = NewTimeline();
  ASSERT_TRUE(slab.Acquire(there).ok());
  std::vector<std::shared_ptr<Timeline>> others;
  for (size_t i = 1; i < RecordSlab::kRecordsPerBlock; ++i) {
    others.push_back(NewTimeline());
    ASSERT_TRUE(slab.Acquire(others.back()).ok());
  }
  Event making, go_on;
  memory.before_making = [&] {
    making.Set();
    go_on.Wait();
  };
  const auto waits = NewTimeline();
  std::thread maker([&] { EXPECT_TRUE(slab.Acquire(waits).ok()); });
  making.Wait();
  EXPECT_TRUE(slab.Find(there.get()).has_value());
  EXPECT_FALSE(slab.Find(waits.get()).has_value());
  slab.Release(there.get());
  go_on.Set();
  maker.join();
  EXPECT_TRUE(slab.Find(waits.get()).has_value());
}

// -- OpenedOnce ---------------------------------------------------------------

using Library = OpenedOnce<int>;

TEST(OpenedOnceTest, OneLibraryThatOpensHoldsUpNoOther) {
  Library slow, quick;
  Event opening, go_on;
  std::thread first([&] {
    const auto got = slow.Get([&]() -> absl::StatusOr<std::unique_ptr<int>> {
      opening.Set();
      go_on.Wait();
      return std::make_unique<int>(1);
    });
    EXPECT_EQ(**got, 1);
  });
  opening.Wait();
  const auto got = quick.Get([]() -> absl::StatusOr<std::unique_ptr<int>> {
    return std::make_unique<int>(2);
  });
  EXPECT_EQ(**got, 2);
  go_on.Set();
  first.join();
}

TEST(OpenedOnceTest, AFailureIsTriedAgainAndASuccessStays) {
  Library library;
  int opened = 0;
  const auto open = [&]() -> absl::StatusOr<std::unique_ptr<int>> {
    if (++opened == 1) return absl::UnimplementedError("no such file");
    return std::make_unique<int>(opened);
  };
  EXPECT_EQ(library.Get(open).status().code(),
            absl::StatusCode::kUnimplemented);
  const auto second = library.Get(open);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(*library.Get(open), *second);
  EXPECT_EQ(opened, 2);
}

// -- InFlightPool -------------------------------------------------------------

// Of items by number, which the test says are done.
std::map<int, bool> in_flight;
int freed = 0;

struct Staging {
  size_t size = 0;
  ~Staging() { ++freed; }
};

struct TestEvent {
  static inline int made = 0;
  int number = 0;
  absl::Status Make() {
    number = ++made;
    return absl::OkStatus();
  }
  absl::Status Record(cudaStream_t) {
    in_flight[number] = true;
    return absl::OkStatus();
  }
  absl::StatusOr<bool> Reached() const { return !in_flight[number]; }
};

class InFlightPoolTest : public ::testing::Test {
 protected:
  using Pool = InFlightPool<Staging, TestEvent>;
  InFlightPoolTest() {
    in_flight.clear();
    freed = 0;
    TestEvent::made = 0;
  }

  static absl::StatusOr<std::unique_ptr<Pool::Item>> Take(Pool& pool,
                                                          size_t bytes,
                                                          WaitFor wait_for) {
    return pool.Take([bytes](const Staging& s) { return s.size >= bytes; },
                     [bytes](Staging* s) {
                       s->size = bytes;
                       return absl::OkStatus();
                     },
                     wait_for, bytes);
  }
  static absl::StatusOr<std::unique_ptr<Pool::Item>> Take(Pool& pool,
                                                          size_t bytes) {
    return Take(pool, bytes, OneLook);
  }
  // Takes and returns one; its number.
  static int Use(Pool& pool, size_t bytes) {
    auto item = Take(pool, bytes);
    EXPECT_TRUE(item.ok()) << item.status();
    if (!item.ok()) return 0;
    const int number = (*item)->done.number;
    EXPECT_TRUE(pool.Return(*std::move(item), nullptr).ok());
    return number;
  }
  static void AllDone() { in_flight.clear(); }
};

TEST_F(InFlightPoolTest, ItemsServeAgainOnceTheirWorkIsDone) {
  Pool pool(4, 1000);
  EXPECT_EQ(Use(pool, 100), 1);
  EXPECT_EQ(Use(pool, 100), 2) << "the first is in flight";
  in_flight[1] = false;
  EXPECT_EQ(Use(pool, 50), 1);
  EXPECT_EQ(pool.bytes(), 200u);
}

TEST_F(InFlightPoolTest, WhatDoesNotFitStaysUnlessThereIsNoRoom) {
  Pool pool(2, 1000);
  EXPECT_EQ(Use(pool, 100), 1);
  AllDone();
  EXPECT_EQ(Use(pool, 200), 2) << "the first is too small, and stays";
  EXPECT_EQ(pool.size(), 2u);
  AllDone();
  EXPECT_EQ(Use(pool, 100), 2) << "the latest used that fits";
  AllDone();
  EXPECT_EQ(Use(pool, 300), 3);
  EXPECT_EQ(freed, 1);
}

TEST_F(InFlightPoolTest, AFullOneIsWaitedFor) {
  Pool pool(8, 1000);
  EXPECT_EQ(Use(pool, 600), 1);
  EXPECT_EQ(Use(pool, 300), 2);
  std::vector<Awaited> looks;
  const auto taken = Take(pool, 500, [&looks](Stream::Look look) {
    looks.push_back(look().value());
    in_flight[2] = false;  // makes no room for it
    looks.push_back(look().value());
    in_flight[1] = false;
    looks.push_back(look().value());
    return absl::OkStatus();
  });
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ((*taken)->value.size, 600u);
  EXPECT_EQ(looks, (std::vector<Awaited>{Awaited::kDevice, Awaited::kDevice,
                                         Awaited::kNothing}));
}

// Full by number, as with decoders.
TEST_F(InFlightPoolTest, ThreadsThatHoldSomeAreWaitedForToo) {
  Pool pool(2);
  auto first = *Take(pool, 10);
  auto second = *Take(pool, 10);
  Awaited awaited = Awaited::kNothing;
  EXPECT_TRUE(absl::IsDeadlineExceeded(Take(pool, 10, [&](Stream::Look look) {
                                         return Note(look, &awaited);
                                       }).status()));
  EXPECT_EQ(awaited, Awaited::kHost) << "the device has nothing of it";
  ASSERT_TRUE(pool.Return(std::move(first), nullptr).ok());
  EXPECT_TRUE(absl::IsDeadlineExceeded(Take(pool, 10, [&](Stream::Look look) {
                                         return Note(look, &awaited);
                                       }).status()));
  EXPECT_EQ(awaited, Awaited::kDevice);
  AllDone();
  EXPECT_TRUE(Take(pool, 10).ok());
  EXPECT_EQ(pool.size(), 2u);
}

// A large one is not passed for ever by small ones.
TEST_F(InFlightPoolTest, WhoComesFirstIsServedFirst) {
  Pool pool(8, 1000);
  EXPECT_EQ(Use(pool, 800), 1);
  const absl::Status large =
      Take(pool, 900, [&](Stream::Look look) {
        EXPECT_EQ(*look(), Awaited::kDevice);
        EXPECT_TRUE(absl::IsDeadlineExceeded(Take(pool, 100).status()))
            << "there is room, and another's turn";
        return absl::CancelledError("it left");
      }).status();
  EXPECT_TRUE(absl::IsCancelled(large));
  EXPECT_EQ(Use(pool, 100), 2) << "it gave its turn up";
}

TEST_F(InFlightPoolTest, MoreThanThereCanBeIsRefused) {
  Pool pool(8, 1000);
  const absl::Status status = Take(pool, 2000).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Reason(status), "DEVICE_MEMORY_EXHAUSTED");
}

TEST_F(InFlightPoolTest, WhatCannotBeMadeTakesNoRoom) {
  Pool pool(1, 1000);
  const auto failed = pool.Take(
      [](const Staging&) { return true; },
      [](Staging*) { return absl::InternalError("no memory"); }, OneLook, 1000);
  EXPECT_EQ(failed.status(), absl::InternalError("no memory"));
  EXPECT_EQ(Use(pool, 1000), 1);
}

TEST_F(InFlightPoolTest, GivesBackOneAtATimeByAge) {
  Pool pool(8, 1000);
  std::vector<std::unique_ptr<Pool::Item>> items;
  for (int i = 0; i < 3; ++i) items.push_back(*Take(pool, 100));
  for (auto& item : items) {
    ASSERT_TRUE(pool.Return(std::move(item), nullptr).ok());
  }
  EXPECT_FALSE(pool.TrimOne(kLater)) << "all are in flight";
  AllDone();
  EXPECT_FALSE(pool.TrimOne(0)) << "all were used since";
  in_flight[1] = true;
  EXPECT_TRUE(pool.TrimOne(kLater));
  EXPECT_EQ(freed, 1);
  EXPECT_EQ(pool.bytes(), 200u);
  EXPECT_TRUE(pool.TrimOne(kLater));
  EXPECT_FALSE(pool.TrimOne(kLater)) << "the first is in flight";
  in_flight[1] = false;
  EXPECT_TRUE(pool.TrimOne(kLater));
  EXPECT_EQ(freed, 3);
  EXPECT_EQ(pool.size(), 0u);
  EXPECT_EQ(pool.bytes(), 0u);
}

// -- StagedCopies -------------------------------------------------------------

// Before anything is pinned.
TEST(StagedCopiesTest, MoreThanThereCanBeIsRefused) {
  constexpr size_t kMost = size_t{512} << 20;
  const std::unique_ptr<Device> device = MakeCpuDevice({.cpu_threads = 1});
  const std::unique_ptr<Stream> stream = *device->CreateStream(0);
  StagedCopies copies;
  bool filled = false;
  const absl::Status status = copies.CopyFilled(
      *stream, kMost + 1, nullptr,
      [&filled](std::span<uint8_t>) {
        filled = true;
        return absl::CancelledError("it was given room");
      },
      [] { return absl::OkStatus(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(Reason(status), "DEVICE_MEMORY_EXHAUSTED") << status;
  EXPECT_NE(status.message().find(std::to_string(kMost)),
            absl::string_view::npos)
      << status;
  EXPECT_FALSE(filled);
}

// -- NvJpegBytes --------------------------------------------------------------

TEST(NvJpegBytesTest, CountsTheCoefficientsOfThePaddedPicture) {
  constexpr size_t kMebi = size_t{1} << 20;
  EXPECT_EQ(NvJpegBytes(1, 1), kMebi);
  EXPECT_EQ(NvJpegBytes(640, 480), 2 * kMebi);
  EXPECT_EQ(NvJpegBytes(1920, 1080), 16 * kMebi);
  EXPECT_EQ(NvJpegBytes(1, 16384), 4 * kMebi) << "padded to 32 pixels";
  EXPECT_EQ(NvJpegBytes(8192, 8192), 512 * kMebi) << "the largest there is";
  EXPECT_EQ(NvJpegBytes(4096, 16384), 512 * kMebi);
}

// -- HostScratch --------------------------------------------------------------

TEST(HostScratchTest, CountsWhatIsTaken) {
  HostScratch scratch(1000, 4);
  {
    const auto a = scratch.Take(600, OneLook);
    const auto b = scratch.Take(400, OneLook);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(scratch.used_bytes(), 1000u);
  }
  EXPECT_EQ(scratch.used_bytes(), 0u);
}

TEST(HostScratchTest, WhatCanNeverFitIsRefused) {
  HostScratch scratch(1000, 1, "the bound");
  const absl::Status refused = scratch.Take(1001, OneLook).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Reason(refused), "DEVICE_MEMORY_EXHAUSTED");
  EXPECT_NE(refused.message().find("(the bound)"), absl::string_view::npos);
  EXPECT_FALSE(RetryAfter(refused).has_value());
}

// Whatever room its bytes have: each is a thread that computes.
TEST(HostScratchTest, SoManyUsersAtATime) {
  for (const size_t users : {size_t{1}, size_t{3}}) {
    HostScratch scratch(1000, users);
    std::vector<HostScratch::Lease> held;
    for (size_t i = 0; i < users; ++i) {
      auto lease = scratch.Take(10, OneLook);
      ASSERT_TRUE(lease.ok()) << lease.status();
      held.push_back(*std::move(lease));
    }
    Awaited awaited = Awaited::kNothing;
    EXPECT_TRUE(absl::IsDeadlineExceeded(
        scratch
            .Take(10, [&](Stream::Look look) { return Note(look, &awaited); })
            .status()));
    EXPECT_EQ(awaited, Awaited::kHost);
    EXPECT_EQ(scratch.used_bytes(), 10 * users);
    held.pop_back();
    EXPECT_TRUE(scratch.Take(10, OneLook).ok());
  }
}

// Bytes, then users: whoever comes first is served first, so that a large one
// is not passed for ever by small ones.
TEST(HostScratchTest, OthersWaitTheirTurn) {
  for (const size_t users : {size_t{1}, size_t{8}}) {
    HostScratch scratch(1000, users);
    std::vector<size_t> order;
    Mutex mu;
    std::vector<std::thread> threads;
    {
      const auto held = scratch.Take(800, OneLook);
      ASSERT_TRUE(held.ok());
      for (const size_t bytes : {size_t{900}, size_t{100}}) {
        threads.emplace_back([&scratch, &order, &mu, bytes] {
          const auto lease = scratch.Take(bytes, Patient);
          EXPECT_TRUE(lease.ok());
          MutexLock lock(&mu);
          order.push_back(bytes);
        });
        ASSERT_TRUE(testing::Eventually(
            [&] { return scratch.waiting() == threads.size(); }));
      }
      EXPECT_EQ(scratch.used_bytes(), 800u);
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(order.size(), 2u);
    if (users == 1) {
      EXPECT_EQ(order[0], 900u);
    }
    EXPECT_EQ(scratch.used_bytes(), 0u);
  }
}

TEST(HostScratchTest, AWaitMayEndBeforeItsTurn) {
  HostScratch scratch(1000, 8);
  const auto held = scratch.Take(800, OneLook);
  ASSERT_TRUE(held.ok());
  Awaited awaited = Awaited::kNothing;
  const absl::Status late =
      scratch
          .Take(900,
                [&](Stream::Look look) {
                  EXPECT_TRUE(absl::IsDeadlineExceeded(
                      scratch.Take(100, OneLook).status()))
                      << "there is room, and another's turn";
                  EXPECT_EQ(scratch.waiting(), 1u);
                  return Note(look, &awaited);
                })
          .status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(late));
  EXPECT_EQ(awaited, Awaited::kHost);
  EXPECT_EQ(scratch.waiting(), 0u);
  EXPECT_EQ(scratch.used_bytes(), 800u);
  EXPECT_TRUE(scratch.Take(100, OneLook).ok()) << "it gave its turn up";
}

}  // namespace
}  // namespace weir::cuda
