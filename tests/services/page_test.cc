#include "server/services/page.h"

#include <gmock/gmock.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "proto/weir/v1/catalog.pb.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

struct Got {
  std::vector<std::string> keys;
  std::string next;
};

// What a service does with a page.
absl::StatusOr<Got> Walk(const std::set<std::string>& list, int32_t page_size,
                         const std::string& token, size_t entry_bytes = 10,
                         const std::string& name = "things") {
  auto page = Page::Read(page_size, token, name);
  if (!page.ok()) return page.status();
  Got got;
  for (const std::string& key : list) {
    if (page->Had(key)) continue;
    if (!page->Take(key, entry_bytes)) break;
    got.keys.push_back(key);
  }
  got.next = page->next_token();
  return got;
}

std::vector<std::string> WalkAll(const std::set<std::string>& list,
                                 int32_t page_size, size_t entry_bytes = 10) {
  std::vector<std::string> keys;
  std::string token;
  do {
    const auto got = Walk(list, page_size, token, entry_bytes);
    EXPECT_TRUE(got.ok()) << got.status();
    if (!got.ok()) break;
    keys.insert(keys.end(), got->keys.begin(), got->keys.end());
    token = got->next;
  } while (!token.empty());
  return keys;
}

TEST(PageTest, EveryEntryIsInExactlyOnePage) {
  const std::set<std::string> list = {"", "a", std::string("a\0b", 3), "ab",
                                      "b"};
  for (int32_t size : {0, 1, 2, 3, 4, 5, 6, 1000, 2147483647}) {
    EXPECT_THAT(WalkAll(list, size), ::testing::ElementsAreArray(list)) << size;
  }
  EXPECT_THAT(WalkAll({}, 1), ElementsAre());
}

TEST(PageTest, TheLastPageSaysSo) {
  EXPECT_EQ(Walk({"a", "b"}, 2, "")->next, "");
  EXPECT_NE(Walk({"a", "b"}, 1, "")->next, "");
}

TEST(PageTest, HoldsAThousandEntriesAtMost) {
  std::set<std::string> list;
  for (int i = 0; i < 1001; ++i) list.insert(absl::StrCat(10000 + i));
  for (int32_t size : {0, 1000, 1001, 2147483647}) {
    EXPECT_EQ(Walk(list, size, "")->keys.size(), 1000u) << size;
  }
}

TEST(PageTest, EndsAtAMebibyteButIsNeverEmpty) {
  const std::set<std::string> list = {"a", "b", "c"};
  EXPECT_THAT(Walk(list, 0, "", kMaxPageBytes / 2)->keys,
              ElementsAre("a", "b"));
  EXPECT_THAT(Walk(list, 0, "", kMaxPageBytes / 2 + 1)->keys, ElementsAre("a"));
  EXPECT_THAT(Walk(list, 0, "", kMaxPageBytes * 9)->keys, ElementsAre("a"));
  EXPECT_THAT(WalkAll(list, 0, kMaxPageBytes * 9), ElementsAre("a", "b", "c"));
}

TEST(PageTest, EntriesThatComeAndGoBetweenPagesDoNotDisturb) {
  const std::string token = Walk({"b", "d", "f"}, 1, "")->next;
  EXPECT_THAT(Walk({"a", "c", "f"}, 9, token)->keys, ElementsAre("c", "f"));
  EXPECT_THAT(Walk({}, 9, token)->keys, ElementsAre());
}

TEST(PageTest, RefusesWhatItDidNotSay) {
  const std::string token = Walk({"a", "b"}, 1, "")->next;
  const struct {
    absl::StatusOr<Got> got;
    const char* field;
  } cases[] = {
      {Walk({"a"}, -1, ""), "page_size"},
      {Walk({"a"}, -2147483647 - 1, ""), "page_size"},
      {Walk({"a"}, 1, "7"), "page_token"},
      {Walk({"a"}, 1, "AAAA"), "page_token"},
      {Walk({"a"}, 1, "not base64!"), "page_token"},
      {Walk({"a"}, 1, token + "\xff"), "page_token"},
      {Walk({"a"}, 1, std::string(9000, 'A')), "page_token"},
      {Walk({"a"}, 1, token, 10, "others"), "page_token"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(c.got.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(Field(c.got.status()), c.field) << c.got.status();
  }
}

TEST(PageTest, CountsAMessagesBytes) {
  v1::ListModelsResponse response;
  Page page = *Page::Read(0, "", "models");
  v1::Model large;
  large.mutable_name()->assign(kMaxPageBytes, 'x');
  EXPECT_TRUE(AddToPage("a", large, &page, response.mutable_models()));
  v1::Model small;
  small.set_name("b");
  EXPECT_FALSE(AddToPage("b", small, &page, response.mutable_models()));
  EXPECT_EQ(response.models_size(), 1);
}

}  // namespace
}  // namespace weir
