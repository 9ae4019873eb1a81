#include "kernels/base/keyed_hash.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace weir {
namespace {

uint64_t HashOf(std::string_view bytes) {
  KeyedHash hash;
  hash.Add(bytes);
  return hash.Finish();
}

std::string Text(size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * i >> 3);
  return text;
}

TEST(KeyedHashTest, DoesNotSeeHowBytesAreCut) {
  for (size_t size :
       {0u, 1u, 6u, 7u, 8u, 447u, 448u, 449u, 896u, 897u, 5000u}) {
    const std::string text = Text(size);
    const uint64_t whole = HashOf(text);
    EXPECT_EQ(HashOf(text), whole);
    for (size_t piece : {1u, 3u, 7u, 64u, 447u, 448u, 449u}) {
      KeyedHash hash;
      for (size_t at = 0; at < size; at += piece) {
        hash.Add(std::string_view(text).substr(at, piece));
        hash.Add("");
      }
      EXPECT_EQ(hash.Finish(), whole) << size << " in pieces of " << piece;
    }
  }
}

TEST(KeyedHashTest, SeesEveryByteAndWhereItStands) {
  std::string text(2000, '\0');
  std::set<uint64_t> seen = {HashOf(text)};
  for (size_t i = 0; i < text.size(); ++i) {
    text[i] = '\x80';
    EXPECT_TRUE(seen.insert(HashOf(text)).second) << i;
    text[i] = '\0';
  }
}

TEST(KeyedHashTest, SeesHowManyZerosThereAre) {
  std::set<uint64_t> seen;
  for (size_t size = 0; size < 2000; ++size) {
    EXPECT_TRUE(seen.insert(HashOf(std::string(size, '\0'))).second) << size;
  }
}

}  // namespace
}  // namespace weir
