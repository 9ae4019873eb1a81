#include "server/bytes/call_arena.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdint>
#include <cstring>

namespace weir {
namespace {

TEST(CallArenaTest, AlignsAndKeepsWhatItGave) {
  CallArena arena;
  const auto odd = arena.AllocateSpan<char>(3);
  std::memcpy(odd.data(), "odd", odd.size());
  const auto numbers = arena.AllocateSpan<uint64_t>(3);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(numbers.data()) % 8, 0u);
  std::memset(numbers.data(), 0xFF, numbers.size_bytes());
  const auto large = arena.AllocateSpan<char>(100000);
  std::memset(large.data(), 0, large.size());
  EXPECT_EQ(std::string_view(odd.data(), odd.size()), "odd");
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

// Its list of blocks is not counted, and must not be worth it.
TEST(CallArenaTest, KeepsNoLongListOfBlocks) {
  CallArena arena;
  // All 0 where a sanitizer has its own malloc.
  const auto held = [] {
    const struct mallinfo2 heap = mallinfo2();
    return heap.uordblks + heap.hblkhd;
  };
  const size_t before = held();
  for (int i = 0; i < 5'000; ++i) arena.AllocateSpan<char>(10'000);
  arena.Reset();
  EXPECT_LE(held() - before, arena.kept_bytes() + 4'096);
}

TEST(CallArenaTest, SaysWhatItWillKeep) {
  CallArena arena;
  arena.AllocateSpan<char>(100);
  EXPECT_EQ(arena.kept_bytes(), 0u);
  arena.AllocateSpan<char>(CallArena::kKeptBytes * 4);
  EXPECT_EQ(arena.kept_bytes(), 0u);
  arena.AllocateSpan<char>(20'000);
  const size_t kept = arena.kept_bytes();
  EXPECT_GE(kept, 20'000u);
  EXPECT_LE(kept, CallArena::kKeptBytes);
  arena.Reset();
  EXPECT_EQ(arena.kept_bytes(), kept);
}

// Lets it have so many bytes and no more.
struct Payer {
  static absl::Status Charge(void* self, size_t bytes) {
    auto& payer = *static_cast<Payer*>(self);
    if (bytes > payer.room) return absl::ResourceExhaustedError("no room");
    payer.room -= bytes;
    payer.paid += bytes;
    return absl::OkStatus();
  }
  size_t room = 0;
  size_t paid = 0;
};

TEST(CallArenaTest, PaysForEveryHeapBlock) {
  Payer payer = {.room = size_t{10} << 20};
  CallArena arena(&Payer::Charge, &payer);
  arena.AllocateSpan<char>(100);
  EXPECT_EQ(payer.paid, 0u);  // inline
  arena.AllocateSpan<char>(1'000'000);
  EXPECT_GE(payer.paid, 1'000'000u);
  EXPECT_TRUE(arena.TryAllocateSpan<char>(1'000'000).ok());
  EXPECT_GE(payer.paid, 2'000'000u);
  // The block that it kept is paid for by the next call too.
  arena.Reset();
  arena.AllocateSpan<char>(10'000);
  arena.Reset();
  const size_t before = payer.paid;
  arena.AllocateSpan<char>(10'000);
  EXPECT_GE(payer.paid, before + 10'000);
}

TEST(CallArenaTest, AsksForMuchAloneBesideIt) {
  size_t charged = 0;
  const CallArena arena(
      [](void* sum, size_t bytes) {
        *static_cast<size_t*>(sum) += bytes;
        return absl::ResourceExhaustedError("full");
      },
      &charged);
  EXPECT_TRUE(arena.Charge(CallArena::kLittleBytes).ok());
  EXPECT_EQ(charged, 0u);
  EXPECT_FALSE(arena.Charge(CallArena::kLittleBytes + 1).ok());
  EXPECT_EQ(charged, CallArena::kLittleBytes + 1);
}

TEST(CallArenaTest, ARefusedSpanTakesNothing) {
  Payer payer = {.room = 100'000};
  CallArena arena(&Payer::Charge, &payer);
  const auto refused = arena.TryAllocateSpan<char>(size_t{1} << 40);
  EXPECT_EQ(refused.status().message(), "no room");
  EXPECT_EQ(arena.refusal().message(), "no room");
  EXPECT_EQ(payer.paid, 0u);
  EXPECT_TRUE(arena.TryAllocateSpan<char>(50'000).ok());
}

// A container that grows in the arena cannot be refused; it is told.
TEST(CallArenaTest, RemembersThatABlockWasRefused) {
  Payer payer = {.room = 1000};
  CallArena arena(&Payer::Charge, &payer);
  const auto taken = arena.AllocateSpan<char>(100'000);
  std::memset(taken.data(), 1, taken.size());
  EXPECT_TRUE(arena.refused());
  EXPECT_EQ(arena.refusal().message(), "no room");
  arena.Reset();
  EXPECT_FALSE(arena.refused());
}

}  // namespace
}  // namespace weir
