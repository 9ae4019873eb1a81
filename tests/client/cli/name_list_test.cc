#include "client/cli/name_list.h"

#include <gtest/gtest.h>

namespace weir::client {
namespace {

TEST(NameListTest, IsShortHoweverManyAndHoweverLong) {
  EXPECT_EQ(NameList({}), "none");
  EXPECT_EQ(NameList({"x"}), "'x'");
  EXPECT_EQ(NameList({"x", "y"}), "'x', 'y'");
  std::vector<std::string> names(10, "n");
  const std::string ten = NameList(names);
  EXPECT_EQ(ten.substr(ten.size() - 3), "'n'");
  names.resize(1000, "n");
  EXPECT_EQ(NameList(names), ten + " and 990 more");
  EXPECT_EQ(NameList({std::string(100, 'a')}),
            "'" + std::string(100, 'a') + "'");
  EXPECT_EQ(NameList({std::string(101, 'a')}),
            "'" + std::string(100, 'a') + "...'");
}

}  // namespace
}  // namespace weir::client
