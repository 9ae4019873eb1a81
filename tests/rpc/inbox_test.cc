#include "server/rpc/inbox.h"

#include <gtest/gtest.h>

#include <deque>
#include <thread>
#include <vector>

#include "tests/base/event.h"
#include "tests/base/eventually.h"

namespace weir {
namespace {

using testing::Eventually;

void Nothing() {}

struct Numbered : InboxNode {
  int producer = 0;
  int number = 0;
};

TEST(InboxTest, KeepsTheOrderOfEachProducer) {
  constexpr int kProducers = 4;
  constexpr int kNodes = 20000;
  std::vector<std::vector<Numbered>> nodes(kProducers);
  for (int p = 0; p < kProducers; ++p) {
    nodes[static_cast<size_t>(p)].resize(kNodes);
    for (int n = 0; n < kNodes; ++n) {
      Numbered& node = nodes[static_cast<size_t>(p)][static_cast<size_t>(n)];
      node.producer = p;
      node.number = n;
    }
  }
  Inbox inbox;
  std::vector<std::thread> producers;
  for (auto& own : nodes) {
    producers.emplace_back([&] {
      for (Numbered& node : own) ASSERT_TRUE(inbox.Post(&node, Nothing));
    });
  }
  std::vector<int> next(kProducers, 0);
  int seen = 0;
  while (seen < kProducers * kNodes) {
    for (InboxNode* node = inbox.TakeAll(); node != nullptr;
         node = node->next) {
      const Numbered* numbered = static_cast<Numbered*>(node);
      EXPECT_EQ(numbered->number,
                next[static_cast<size_t>(numbered->producer)]++);
      ++seen;
    }
  }
  for (std::thread& producer : producers) producer.join();
  EXPECT_TRUE(inbox.empty());
}

TEST(InboxTest, RefusesOnceClosed) {
  Inbox inbox;
  InboxNode first;
  InboxNode second;
  EXPECT_TRUE(inbox.Post(&first, Nothing));
  EXPECT_EQ(inbox.Close(), &first);
  EXPECT_FALSE(inbox.Post(&second, Nothing));
  EXPECT_EQ(inbox.Close(), nullptr);
}

TEST(InboxTest, OneRingIsOnItsWayAtATime) {
  Inbox inbox;
  InboxNode nodes[4];
  int rings = 0;
  const auto ring = [&rings] { ++rings; };
  inbox.Post(&nodes[0], ring);
  inbox.Post(&nodes[1], ring);
  EXPECT_EQ(rings, 1);
  EXPECT_FALSE(inbox.Mute());
  inbox.Heard();
  inbox.Post(&nodes[2], ring);
  EXPECT_EQ(rings, 2);
  inbox.Heard();
  EXPECT_TRUE(inbox.Mute());
  EXPECT_TRUE(inbox.Post(&nodes[3], ring));
  EXPECT_EQ(rings, 2);
}

// Nobody else knows when it may go: what it was posted for may be over, and
// its thread with it, before whoever posted goes on.
TEST(InboxTest, ClosesWhenWhoeverPostedIsDone) {
  Inbox inbox;
  std::deque<InboxNode> nodes(1);
  Event ringing;
  bool rung = false;  // of one thread, then of the other
  std::thread poster([&] {
    inbox.Post(&nodes[0], [&] {
      ringing.Set();
      EXPECT_TRUE(Eventually(
          [&] { return !inbox.Post(&nodes.emplace_back(), Nothing); }));
      // Whoever does not wait for it is past Close now.
      for (int i = 0; i < 1000; ++i) std::this_thread::yield();
      rung = true;
    });
  });
  ringing.Wait();
  inbox.Close();
  EXPECT_TRUE(rung);
  poster.join();
}

}  // namespace
}  // namespace weir
