#include "server/rpc/inbox.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace weir {
namespace {

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
      for (Numbered& node : own) ASSERT_TRUE(inbox.Push(&node));
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
  EXPECT_TRUE(inbox.Push(&first));
  EXPECT_EQ(inbox.Close(), &first);
  EXPECT_FALSE(inbox.Push(&second));
  EXPECT_EQ(inbox.Close(), nullptr);
}

}  // namespace
}  // namespace weir
