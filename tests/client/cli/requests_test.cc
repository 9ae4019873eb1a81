#include "client/cli/requests.h"

#include <gmock/gmock.h>

#include <string>

namespace weir::client {
namespace {

using ::testing::HasSubstr;

TEST(RequestsTest, ARequestIsLessThan2GiB) {
  constexpr size_t k2GiB = size_t{1} << 31;
  for (const size_t bytes : {size_t{0}, size_t{1}, k2GiB - 1}) {
    EXPECT_TRUE(CheckRequestBytes(bytes).ok()) << bytes;
  }
  for (const size_t bytes : {k2GiB, k2GiB + 1, 2 * k2GiB, 5 * k2GiB + 7}) {
    const absl::Status status = CheckRequestBytes(bytes);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(std::to_string(bytes) + " bytes"));
  }
}

TEST(RequestsTest, AnInputIsGivenOnce) {
  EXPECT_TRUE(ParseInputs({"x=float:1:1", "y=float:1:1"}).ok());
  const auto twice = ParseInputs({"x=float:1:1", "y=float:1:1", "x=int8:1:2"});
  EXPECT_EQ(twice.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(twice.status().message(), "--input: 'x' is given twice");
}

TEST(RequestsTest, AnOutputHasAFileOfItsOwn) {
  const std::vector<std::string> names = {"y", "z", "y=z"};
  const auto files =
      OutputFiles({"y=a", "z=folder/a", "y=z=b"}, names, "the model");
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->at("y=z"), "b");
  const struct {
    std::vector<std::string> texts;
    const char* part;
  } cases[] = {
      {{"y=a", "z=b", "y=c"}, "--output: 'y' is given twice"},
      {{"y=a", "z=a"}, "--output: 'y' and 'z' would be written to one file, a"},
      {{"z=/x/a", "y=/x/./b/../a"}, "to one file, /x/./b/../a"},
      {{"x=a"}, "the model has no output 'x', but 'y'"}};
  for (const auto& c : cases) {
    const auto refused = OutputFiles(c.texts, names, "the model");
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr(c.part));
  }
}

}  // namespace
}  // namespace weir::client
