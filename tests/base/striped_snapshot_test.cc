#include "kernels/base/striped_snapshot.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/base/event.h"
#include "tests/base/eventually.h"

namespace weir {
namespace {

TEST(StripedSnapshotTest, ReadsWhatWasStored) {
  StripedSnapshot<std::string> snapshot(
      std::make_shared<const std::string>("old"));
  EXPECT_EQ(snapshot.Read([](const std::string& s) { return s; }), "old");
  const auto kept = snapshot.Load();
  snapshot.Store(std::make_shared<const std::string>("new"));
  EXPECT_EQ(*kept, "old");
  EXPECT_EQ(*snapshot.Load(), "new");
}

TEST(StripedSnapshotTest, LetsGoOfTheOldValue) {
  StripedSnapshot<int> snapshot(std::make_shared<const int>(1));
  std::weak_ptr<const int> old = snapshot.Load();
  snapshot.Store(std::make_shared<const int>(2));
  EXPECT_TRUE(old.expired());
}

TEST(StripedSnapshotTest, ReadersOnManyThreadsSeeWholeValues) {
  struct Pair {
    int a, b;
  };
  StripedSnapshot<Pair> snapshot(std::make_shared<const Pair>(Pair{0, 0}));
  std::atomic<bool> done{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&] {
      while (!done) {
        EXPECT_TRUE(snapshot.Read([](const Pair& p) { return p.a == p.b; }));
      }
    });
  }
  for (int i = 1; i <= 1000; ++i) {
    snapshot.Store(std::make_shared<const Pair>(Pair{i, i}));
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
}

// Who looks at it holds up no other reader, whichever its stripe, and the old
// value stays until it has looked.
TEST(StripedSnapshotTest, AWriterWaitsForWhoLooksAndReadersDoNot) {
  StripedSnapshot<int> snapshot(std::make_shared<const int>(1));
  const std::weak_ptr<const int> old = snapshot.Load();
  Event looking, go_on;
  std::thread reader([&] {
    EXPECT_EQ(snapshot.Read([&](const int& value) {
      looking.Set();
      go_on.Wait();
      return value;
    }),
              1);
  });
  looking.Wait();
  std::thread writer([&] { snapshot.Store(std::make_shared<const int>(2)); });
  std::vector<std::thread> others;
  for (int i = 0; i < 20; ++i) {
    others.emplace_back([&] {
      while (snapshot.Read([](int value) { return value; }) != 2) {
        std::this_thread::yield();
      }
    });
  }
  for (std::thread& other : others) other.join();
  EXPECT_FALSE(old.expired());
  go_on.Set();
  reader.join();
  writer.join();
  EXPECT_TRUE(old.expired());
}

// At each moment somebody looks, in the same stripe: each of two readers goes
// when the other one has come.
TEST(StripedSnapshotTest, AWriterDoesNotWaitForThoseWhoComeLater) {
  constexpr size_t kManyStripes = 64;  // a multiple of how many there are
  StripedSnapshot<int> snapshot(std::make_shared<const int>(1));
  std::atomic<bool> stored = false, over = false;
  std::array<Event, 2> came;
  std::array<size_t, 2> stripes = {};
  const auto look = [&](size_t self) {
    stripes[self] = ThreadNumber() % kManyStripes;
    for (size_t round = 1; !over; ++round) {
      snapshot.Read([&](int) {
        came[self].Set();
        came[1 - self].Wait(round + self);
      });
    }
    came[self].Set();
  };
  std::thread first(look, size_t{0});
  came[0].Wait();
  for (size_t i = 1; i < kManyStripes; ++i) std::thread(ThreadNumber).join();
  std::thread second(look, size_t{1});
  came[1].Wait();
  std::thread writer([&] {
    snapshot.Store(std::make_shared<const int>(2));
    stored = true;
  });
  EXPECT_TRUE(testing::Eventually([&] { return stored.load(); }));
  over = true;
  for (std::thread* thread : {&first, &second, &writer}) thread->join();
  EXPECT_EQ(stripes[0], stripes[1]);
}

TEST(StripedSnapshotTest, AThreadKeepsItsNumber) {
  const size_t mine = ThreadNumber();
  EXPECT_EQ(ThreadNumber(), mine);
  size_t other = mine;
  std::thread([&] { other = ThreadNumber(); }).join();
  EXPECT_NE(other, mine);
}

}  // namespace
}  // namespace weir
