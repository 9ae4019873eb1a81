#include "server/rpc/call_arena.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

namespace weir {
namespace {

TEST(CallArenaTest, AlignsAndKeepsWhatItGave) {
  CallArena arena;
  const std::string_view text = arena.CopyString("odd");
  const auto numbers = arena.AllocateSpan<uint64_t>(3);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(numbers.data()) % 8, 0u);
  std::memset(numbers.data(), 0xFF, numbers.size_bytes());
  const auto large = arena.AllocateSpan<char>(100000);
  std::memset(large.data(), 0, large.size());
  EXPECT_EQ(text, "odd");
  EXPECT_EQ(numbers[2], UINT64_MAX);
}

TEST(CallArenaTest, UsesTheSameMemoryForTheNextCall) {
  CallArena arena;
  const void* inline_first = arena.allocate(100);
  const void* block_first = arena.allocate(10000);
  arena.Reset();
  EXPECT_EQ(arena.allocate(100), inline_first);
  EXPECT_EQ(arena.allocate(10000), block_first);
}

TEST(CallArenaTest, KeepsOnlySmallBlocks) {
  CallArena arena;
  const void* small = arena.allocate(10000);
  std::memset(arena.allocate(CallArena::kKeptBytes * 4), 1,
              CallArena::kKeptBytes * 4);
  arena.Reset();
  EXPECT_EQ(arena.allocate(10000), small);
}

}  // namespace
}  // namespace weir
