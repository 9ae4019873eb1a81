#include "kernels/base/striped_snapshot.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

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

TEST(StripedSnapshotTest, AThreadKeepsItsStripe) {
  const size_t mine = ThreadStripe();
  EXPECT_EQ(ThreadStripe(), mine);
  size_t other = mine;
  std::thread([&] { other = ThreadStripe(); }).join();
  EXPECT_NE(other, mine);
}

}  // namespace
}  // namespace weir
