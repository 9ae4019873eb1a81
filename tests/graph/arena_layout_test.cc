#include "kernels/graph/arena_layout.h"

#include <gtest/gtest.h>

#include <random>

#include "kernels/base/alignment.h"

namespace weir {
namespace {

void ExpectNoOverlap(const std::vector<ArenaBlock>& blocks, size_t arena) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    const ArenaBlock& a = blocks[i];
    EXPECT_EQ(a.offset % kBlockAlignment, 0u);
    EXPECT_LE(a.offset + a.bytes, arena);
    for (size_t j = 0; j < i; ++j) {
      const ArenaBlock& b = blocks[j];
      const bool meet =
          a.first_step <= b.last_step && b.first_step <= a.last_step;
      const bool overlap =
          a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
      ASSERT_FALSE(meet && overlap) << i << " and " << j;
    }
  }
}

TEST(ArenaLayoutTest, EmptyIsEmpty) {
  std::vector<ArenaBlock> blocks;
  EXPECT_EQ(LayOutArena(blocks), 0u);
  blocks = {{0, 0, 5}};
  EXPECT_EQ(LayOutArena(blocks), 0u);
}

TEST(ArenaLayoutTest, SharesBytesInTime) {
  std::vector<ArenaBlock> blocks = {{1000, 0, 1}, {1000, 1, 2}, {1000, 2, 3}};
  EXPECT_EQ(LayOutArena(blocks), 2048u);
  ExpectNoOverlap(blocks, 2048);
}

TEST(ArenaLayoutTest, GrowsFromAFreeTop) {
  std::vector<ArenaBlock> blocks = {{256, 0, 9}, {256, 0, 0}, {1024, 1, 2}};
  EXPECT_EQ(LayOutArena(blocks), 256u + 1024u);
  ExpectNoOverlap(blocks, 1280);
}

TEST(ArenaLayoutTest, UsesTheRestOfARange) {
  std::vector<ArenaBlock> blocks = {
      {1024, 0, 0}, {256, 0, 9}, {768, 1, 1}, {256, 1, 1}};
  EXPECT_EQ(LayOutArena(blocks), 1024u + 256u);
  ExpectNoOverlap(blocks, 1280);
}

// In whatever order they become free.
TEST(ArenaLayoutTest, JoinsFreeRanges) {
  for (size_t first = 0; first < 3; ++first) {
    SCOPED_TRACE(first);
    std::vector<ArenaBlock> blocks(3, {256, 0, 1});
    blocks[first].last_step = 0;
    blocks.push_back({256, 0, 9});
    blocks.push_back({768, 2, 2});
    EXPECT_EQ(LayOutArena(blocks), 768u + 256u);
    ExpectNoOverlap(blocks, 1024);
  }
}

TEST(ArenaLayoutTest, NeverLetsLiveBlocksMeet) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    std::vector<ArenaBlock> blocks(200);
    size_t sum = 0;
    for (ArenaBlock& block : blocks) {
      block.bytes = random() % 5000;
      block.first_step = random() % 100;
      block.last_step = block.first_step + random() % 20;
      sum += (block.bytes + 255) / 256 * 256;
    }
    const size_t arena = LayOutArena(blocks);
    EXPECT_LT(arena, sum);
    ExpectNoOverlap(blocks, arena);
  }
}

}  // namespace
}  // namespace weir
