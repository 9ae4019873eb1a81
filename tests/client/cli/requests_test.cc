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

}  // namespace
}  // namespace weir::client
