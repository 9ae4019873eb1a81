#include "server/spaces/space_token.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/hash/hash.h"

namespace weir {
namespace {

TEST(SpaceTokenTest, TellsWhereItsSpaceLives) {
  for (const SpaceToken::Origin origin :
       {SpaceToken::Origin{.worker = 0, .start = 0},
        SpaceToken::Origin{.worker = 7, .start = 0x1234},
        SpaceToken::Origin{.worker = 255, .start = 0xfffe}}) {
    const SpaceToken token = SpaceToken::New(origin);
    EXPECT_EQ(token.origin(), origin);
    EXPECT_EQ(static_cast<uint8_t>(token.bytes()[0]), origin.worker)
        << "others find the worker without more";
  }
}

TEST(SpaceTokenTest, IsAnotherOneEachTime) {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    seen.emplace(SpaceToken::New({.worker = 1, .start = 2}).bytes());
  }
  EXPECT_EQ(seen.size(), 1000u);
  // Each of the random bytes takes many values.
  for (size_t at = 3; at < SpaceToken::kBytes; ++at) {
    std::set<char> values;
    for (const std::string& bytes : seen) values.insert(bytes[at]);
    EXPECT_GT(values.size(), 100u) << "byte " << at;
  }
}

TEST(SpaceTokenTest, IsReadFromItsBytesAlone) {
  const SpaceToken token = SpaceToken::New({.worker = 1, .start = 2});
  const std::string bytes(token.bytes());
  EXPECT_EQ(bytes.size(), 16u);
  const auto read = SpaceToken::Read(bytes);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(*read, token);
  EXPECT_EQ(absl::Hash<SpaceToken>()(*read), absl::Hash<SpaceToken>()(token));
  EXPECT_FALSE(SpaceToken::Read("").has_value());
  EXPECT_FALSE(SpaceToken::Read(bytes.substr(1)).has_value());
  EXPECT_FALSE(SpaceToken::Read(bytes + "x").has_value());
}

TEST(SpaceTokenTest, DiffersInAnyOfItsBytes) {
  const SpaceToken token = SpaceToken::New({});
  for (size_t at = 0; at < SpaceToken::kBytes; ++at) {
    std::string bytes(token.bytes());
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    EXPECT_FALSE(*SpaceToken::Read(bytes) == token) << "byte " << at;
  }
}

}  // namespace
}  // namespace weir
