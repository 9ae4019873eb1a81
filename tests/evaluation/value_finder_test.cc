#include "server/evaluation/value_finder.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

std::vector<ValueDecl> Named(int count, const std::string& prefix) {
  std::vector<ValueDecl> values(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    values[static_cast<size_t>(i)].name = absl::StrCat(prefix, i);
  }
  return values;
}

TEST(ValueFinderTest, FindsTheFirstOfANameHoweverManyThereAre) {
  for (const int count : {3, 100}) {
    std::vector<ValueDecl> values = Named(count, "x");
    values.push_back(values.front());
    for (const size_t lookups : {size_t{1}, size_t{100}}) {
      const ValueFinder finder(values, lookups);
      for (int i = 0; i < count; ++i) {
        EXPECT_EQ(finder.Find(absl::StrCat("x", i)), i);
      }
      EXPECT_EQ(finder.Find("y"), -1);
      EXPECT_EQ(finder.Find(""), -1);
    }
  }
  const std::vector<ValueDecl> none;
  EXPECT_EQ(ValueFinder(none, 100).Find("x"), -1);
}

// One by one, this is 45 billion comparisons of names that begin alike.
TEST(ValueFinderTest, ManyNamesAreNotComparedWithEachOther) {
  constexpr int kMany = 300'000;
  const std::vector<ValueDecl> values = Named(kMany, std::string(50, 'x'));
  const ValueFinder finder(values, values.size());
  for (int i = 0; i < kMany; ++i) {
    ASSERT_EQ(finder.Find(values[static_cast<size_t>(i)].name), i);
  }
}

}  // namespace
}  // namespace weir
