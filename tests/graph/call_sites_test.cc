#include "kernels/graph/call_sites.h"

#include <gtest/gtest.h>

#include <string>

#include "kernels/base/error_info.h"

namespace weir {
namespace {

absl::Status Broken(size_t node) {
  return WithNodeIndex(absl::InvalidArgumentError("broken"), node);
}

TEST(CallSitesTest, TellTheSiteOfTheNodeAtFault) {
  CallSites sites;
  EXPECT_TRUE(sites.empty());
  EXPECT_EQ(sites.bytes(), 0u);
  sites.Add(1, "one.py:1");
  sites.Add(3, "three.py:33");
  sites.Add(4, "");
  EXPECT_FALSE(sites.empty());
  EXPECT_GE(sites.bytes(), 19u);
  EXPECT_EQ(sites.Tell(Broken(3)).message(), "three.py:33: broken");
  EXPECT_EQ(sites.Tell(Broken(1)).code(), absl::StatusCode::kInvalidArgument);
  for (const size_t node : {0u, 4u}) {
    EXPECT_EQ(sites.Tell(Broken(node)).message(), "broken");
  }
  EXPECT_EQ(sites.Tell(absl::InternalError("of no node")).message(),
            "of no node");
  EXPECT_TRUE(sites.Tell(absl::OkStatus()).ok());
}

TEST(CallSitesTest, TellOnce) {
  CallSites sites;
  sites.Add(0, "a.py:1");
  const absl::Status told = sites.Tell(Broken(0));
  EXPECT_EQ(sites.Tell(told), told);
}

// It is about a node of another graph.
TEST(CallSitesTest, TellNothingOfWhatIsInherited) {
  CallSites sites;
  sites.Add(0, "a.py:1");
  const absl::Status inherited = Inherited(Broken(0), "it reads that: ");
  EXPECT_EQ(sites.Tell(inherited), inherited);
}

// What is told is told in protobuf's strings.
TEST(CallSitesTest, AreCutBetweenCharacters) {
  std::string start = "a";
  while (start.size() < CallSites::kMaxSiteBytes - 1) start += "\xc3\xa9";
  CallSites sites;
  sites.Add(0, start + "\xc3\xa9\xc3\xa9");
  EXPECT_EQ(sites.Tell(Broken(0)).message(), start + ": broken");
}

}  // namespace
}  // namespace weir
