#include "server/models/name_list.h"

#include <gtest/gtest.h>

#include <string>

namespace weir {
namespace {

TEST(NameListTest, IsShortHoweverManyAndHoweverLong) {
  NameList names;
  EXPECT_EQ(names.Text(), "none");
  names.Add("x");
  EXPECT_EQ(names.Text(), "\"x\"");
  names.Add("y\xff");
  EXPECT_EQ(names.Text(), "\"x\", \"y\\xff\"");
  for (int i = 2; i < 8; ++i) names.Add("n");
  const std::string eight = names.Text();
  EXPECT_EQ(eight.find("more"), std::string::npos);
  for (int i = 0; i < 1000; ++i) names.Add(std::string(1000, 'l'));
  EXPECT_EQ(names.Text(), eight + " and 1000 more");
  NameList wide;
  wide.Add(std::string(1000, 'l'));
  EXPECT_LT(wide.Text().size(), 100u);
}

}  // namespace
}  // namespace weir
