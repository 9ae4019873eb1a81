#include "kernels/graph/opsets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "kernels/ops/registry.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

TEST(OpsetsTest, KnowsARange) {
  EXPECT_TRUE(CheckOpset("", "Add", kOldestOnnxOpset).ok());
  EXPECT_TRUE(CheckOpset("", "Add", kNewestOnnxOpset).ok());
  EXPECT_EQ(CheckOpset("", "Add", kOldestOnnxOpset - 1).code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(CheckOpset("", "Add", kNewestOnnxOpset + 1).code(),
            absl::StatusCode::kUnimplemented);
}

TEST(OpsetsTest, KnowsWhenAnOperatorBegan) {
  EXPECT_TRUE(CheckOpset("", "Gelu", 20).ok());
  const absl::Status early = CheckOpset("", "Gelu", 19);
  EXPECT_EQ(early.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(early.message()), HasSubstr("from opset 20"));
}

TEST(OpsetsTest, HasARowForEveryOnnxOperator) {
  const std::unique_ptr<OpRegistry> ops = MakeOpRegistry();
  for (const OpDef* op : ops->List()) {
    if (!op->domain.empty()) continue;
    EXPECT_TRUE(HasOpsetRow(op->name)) << op->name;
  }
}

TEST(OpsetsTest, HasItsOwnDomain) {
  EXPECT_TRUE(CheckOpset("weir", "Crop", kWeirOpset).ok());
  EXPECT_EQ(CheckOpset("weir", "Crop", kWeirOpset + 1).code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace weir
