#include "server/bytes/bytes_elements.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/bytes/sliced.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

TEST(BytesElementsTest, SplitsRawStrings) {
  const std::string raw("\x05\0\0\0hello\0\0\0\0\x02\0\0\0ab", 19);
  for (size_t piece : {1u, 6u, 100u}) {
    const Sliced sliced(raw, piece);
    CallArena arena;
    std::vector<StringRef> strings(3);
    ASSERT_TRUE(SplitStrings(sliced.view(), &arena, strings).ok());
    EXPECT_EQ(std::string_view(strings[0]), "hello");
    EXPECT_EQ(strings[1].size, 0u);
    EXPECT_EQ(std::string_view(strings[2]), "ab");
    strings.resize(2);
    EXPECT_THAT(
        std::string(SplitStrings(sliced.view(), &arena, strings).message()),
        HasSubstr("6 bytes follow"));
    strings.resize(4);
    EXPECT_THAT(
        std::string(SplitStrings(sliced.view(), &arena, strings).message()),
        HasSubstr("element 3 of 4"));
  }
}

TEST(BytesElementsTest, AnElementEndsWithTheTensor) {
  for (const std::string& raw :
       {std::string("\x05\0\0\0hell", 8), std::string("\xff\xff\xff\xff", 4),
        std::string("\x01\0\0", 3), std::string()}) {
    for (size_t piece : {1u, 100u}) {
      const Sliced sliced(raw, piece);
      CallArena arena;
      std::vector<StringRef> one(1);
      EXPECT_THAT(
          std::string(SplitStrings(sliced.view(), &arena, one).message()),
          HasSubstr("element 0 of 1 runs past the end"));
    }
  }
}

TEST(BytesElementsTest, OnlyWhatIsCutIsCopied) {
  const std::string raw("\x05\0\0\0hello\x02\0\0\0ab", 15);
  CallArena nothing(
      [](void*, size_t) { return absl::ResourceExhaustedError("no room"); },
      nullptr);
  // All that is in the arena itself is taken.
  ASSERT_TRUE(nothing.TryAllocate(CallArena::kInlineBytes, 1).ok());
  std::vector<StringRef> two(2);
  const Sliced whole(raw, 9);  // after "hello"
  ASSERT_TRUE(SplitStrings(whole.view(), &nothing, two).ok());
  EXPECT_EQ(static_cast<const void*>(two[0].data),
            whole.view().pieces()[0].data() + 4);
  const Sliced cut(raw, 8);
  EXPECT_EQ(SplitStrings(cut.view(), &nothing, two).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(WriteStrings(two), raw);
}

}  // namespace
}  // namespace weir
