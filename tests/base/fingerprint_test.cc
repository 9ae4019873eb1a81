#include "kernels/base/fingerprint.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace weir {
namespace {

TEST(FingerprintTest, IsTheSameInEveryProcess) {
  EXPECT_EQ(Fingerprint(""), 0xb743db30302f5574u);
  EXPECT_EQ(Fingerprint("weir"), 0xaa9f84ddb26d94d6u);
}

TEST(FingerprintTest, TellsBytesLengthsAndSeedsApart) {
  std::set<uint64_t> seen;
  size_t shown = 0;
  for (size_t length = 0; length < 40; ++length) {
    std::string bytes(length, '\0');
    EXPECT_TRUE(seen.insert(Fingerprint(bytes)).second) << length;
    EXPECT_TRUE(seen.insert(Fingerprint(bytes, 1)).second) << length;
    shown += 2;
    for (size_t i = 0; i < length; ++i) {
      bytes[i] = 1;
      EXPECT_TRUE(seen.insert(Fingerprint(bytes)).second) << length << " " << i;
      bytes[i] = 0;
      ++shown;
    }
  }
  EXPECT_EQ(seen.size(), shown);
}

}  // namespace
}  // namespace weir
