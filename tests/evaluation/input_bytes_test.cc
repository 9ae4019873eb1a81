#include "server/evaluation/input_bytes.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "server/bytes/bytes_elements.h"
#include "tests/bytes/sliced.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBytes = 100'000;

// Lets an arena have so many bytes and no more.
struct Payer {
  static absl::Status Charge(void* self, size_t bytes) {
    auto& payer = *static_cast<Payer*>(self);
    if (bytes > payer.room) return absl::ResourceExhaustedError("no room");
    payer.room -= bytes;
    return absl::OkStatus();
  }
  size_t room;
};

absl::Status Fill(const Sliced& sliced, CallArena* arena, InputSource* input) {
  const int64_t shape[] = {kBytes};
  return FillInput(DType::kUint8, shape, sliced.view(), /*on_host=*/false,
                   arena, input);
}

std::string Text(const InputSource& input) {
  std::string text;
  for (std::string_view piece : input.pieces) text += piece;
  return text;
}

// A client may send a frame for each byte: to list the pieces would take
// sixteen times the bytes, of which nothing says that they are there.
TEST(InputBytesTest, SmallPiecesAreJoinedInTheArena) {
  const std::string bytes(kBytes, 'x');
  const Sliced sliced(bytes, 1);
  Payer enough{2 * kBytes};
  CallArena arena(&Payer::Charge, &enough);
  InputSource input;
  ASSERT_TRUE(Fill(sliced, &arena, &input).ok());
  EXPECT_EQ(input.pieces.size(), 1u);
  EXPECT_LE(enough.room, static_cast<size_t>(kBytes));
  EXPECT_EQ(Text(input), bytes);

  Payer little{kBytes / 2};
  CallArena full(&Payer::Charge, &little);
  EXPECT_EQ(Fill(sliced, &full, &input).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(InputBytesTest, LargePiecesStayWhereTheyAre) {
  const std::string bytes(kBytes, 'x');
  const Sliced sliced(bytes, 1000);
  Payer nothing{0};
  CallArena arena(&Payer::Charge, &nothing);
  InputSource input;
  ASSERT_TRUE(Fill(sliced, &arena, &input).ok());
  ASSERT_EQ(input.pieces.size(), 100u);
  EXPECT_EQ(input.pieces.capacity(), 100u);
  EXPECT_EQ(static_cast<const void*>(input.pieces[1].data()),
            sliced.view().pieces()[1].data());
  EXPECT_EQ(Text(input), bytes);
}

// Who reads on the host reads from one place, however large the pieces are.
TEST(InputBytesTest, WhatTheHostReadsIsOnePiece) {
  std::vector<int64_t> numbers(10'000);
  std::iota(numbers.begin(), numbers.end(), 0);
  const std::string bytes(reinterpret_cast<const char*>(numbers.data()),
                          numbers.size() * sizeof(int64_t));
  const Sliced sliced(bytes, 1001);
  const int64_t shape[] = {10'000};
  for (const bool on_host : {true, false}) {
    Payer enough{2 * bytes.size()};
    CallArena arena(&Payer::Charge, &enough);
    InputSource input;
    ASSERT_TRUE(
        FillInput(DType::kInt64, shape, sliced.view(), on_host, &arena, &input)
            .ok());
    EXPECT_EQ(input.pieces.size() == 1, on_host);
    EXPECT_EQ(Text(input), bytes);
  }
}

TEST(InputBytesTest, BytesAreAsManyAsTypeAndShapeNeed) {
  const int64_t shape[] = {3};
  for (const size_t size : {11u, 12u, 13u}) {
    const std::string bytes(size, 'x');
    const Sliced sliced(bytes, 100);
    CallArena arena;
    InputSource input;
    const absl::Status status = FillInput(DType::kFloat, shape, sliced.view(),
                                          /*on_host=*/false, &arena, &input);
    EXPECT_EQ(status.ok(), size == 12) << status;
    if (status.ok()) continue;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              absl::StrCat("has ", size, " bytes; its type and shape need 12"));
  }
}

TEST(InputBytesTest, BooleansBecomeZeroOrOneWhereverTheyStand) {
  constexpr size_t kBooleans = 19;
  const int64_t shape[] = {kBooleans};
  for (size_t at = 0; at < kBooleans; ++at) {
    std::string bytes(kBooleans, '\1');
    bytes[at] = '\2';
    const Sliced sliced(bytes, 100);
    CallArena arena;
    InputSource input;
    ASSERT_TRUE(FillInput(DType::kBool, shape, sliced.view(),
                          /*on_host=*/false, &arena, &input)
                    .ok());
    EXPECT_EQ(Text(input), std::string(kBooleans, '\1')) << at;
  }
}

// Nothing is taken for strings that the bytes cannot hold.
TEST(InputBytesTest, StringsAreNoMoreThanTheirBytes) {
  const std::string bytes(8, '\0');  // two empty ones
  const Sliced sliced(bytes, 100);
  for (const int64_t count : {int64_t{2}, int64_t{3}, int64_t{1} << 20}) {
    Payer nothing{0};
    CallArena arena(&Payer::Charge, &nothing);
    InputSource input;
    const absl::Status status =
        FillInput(DType::kString, {&count, 1}, sliced.view(),
                  /*on_host=*/true, &arena, &input);
    EXPECT_EQ(status.ok(), count == 2) << status;
    if (status.ok()) continue;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("cannot hold them"));
  }
}

TEST(TextElementsTest, CountThoseOfAllInputs) {
  TextElements elements;
  const int64_t half = kMaxTextElements / 2, rest = kMaxTextElements - half;
  EXPECT_TRUE(elements.Take(DType::kFloat, {kMaxTextElements}).ok());
  EXPECT_TRUE(elements.Take(DType::kString, {half}).ok());
  EXPECT_EQ(elements.Take(DType::kString, {rest + 1}).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(elements.Take(DType::kString, {rest}).ok());
  EXPECT_EQ(Reason(elements.Take(DType::kString, {1})),
            "TOO_MANY_TEXT_ELEMENTS");
}

}  // namespace
}  // namespace weir
