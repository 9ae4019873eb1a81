#include "kernels/graph/opsets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/ops/registry.h"

namespace weir {

bool operator==(const OpsetRange& a, const OpsetRange& b) {
  return a.first == b.first && a.last == b.last;
}

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const OpDef& Def(std::string_view name, std::string_view domain = "") {
  static const std::unique_ptr<OpRegistry> ops = MakeOpRegistry();
  return *ops->Find(domain, name);
}

OpDef Changed(std::vector<int> meanings, int unknown_from) {
  OpDef def;
  def.name = "Changed";
  def.meanings = std::move(meanings);
  def.unknown_from = unknown_from;
  return def;
}

TEST(OpsetsTest, KnowsARange) {
  EXPECT_TRUE(CheckOpset(Def("Add"), kOldestOnnxOpset).ok());
  EXPECT_TRUE(CheckOpset(Def("Add"), kNewestOnnxOpset).ok());
  EXPECT_EQ(CheckOpset(Def("Add"), kOldestOnnxOpset - 1).code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(CheckOpset(Def("Add"), kNewestOnnxOpset + 1).code(),
            absl::StatusCode::kUnimplemented);
}

TEST(OpsetsTest, SaysHowToComeToAnOpsetThatItKnows) {
  EXPECT_TRUE(CheckOnnxOpset(kOldestOnnxOpset).ok());
  EXPECT_TRUE(CheckOnnxOpset(kNewestOnnxOpset).ok());
  for (const int64_t opset :
       {int64_t{kOldestOnnxOpset} - 1, int64_t{kNewestOnnxOpset} + 1,
        (int64_t{1} << 32) + kOldestOnnxOpset}) {
    const absl::Status unknown = CheckOnnxOpset(opset);
    EXPECT_EQ(unknown.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(unknown.message()),
                HasSubstr("opset " + std::to_string(opset) +
                          ": this server knows 11 to 25"));
    EXPECT_THAT(std::string(unknown.message()),
                HasSubstr("onnx.version_converter"));
  }
}

TEST(OpsetsTest, KnowsWhenAnOperatorBegan) {
  EXPECT_TRUE(CheckOpset(Def("Gelu"), 20).ok());
  const absl::Status early = CheckOpset(Def("Gelu"), 19);
  EXPECT_EQ(early.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(early.message()), HasSubstr("from opset 20"));
  EXPECT_THAT(OpsetsOf(Def("Gelu")), ElementsAre(OpsetRange{20, 25}));
}

TEST(OpsetsTest, KnowsWhereItsKnowledgeEnds) {
  const OpDef def = Changed({9, 13}, 21);
  EXPECT_TRUE(CheckOpset(def, 20).ok());
  const absl::Status late = CheckOpset(def, 21);
  EXPECT_EQ(late.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(late.message()),
              HasSubstr("changed in opset 21; this server knows it up to 20"));
  EXPECT_THAT(OpsetsOf(def),
              ElementsAre(OpsetRange{11, 12}, OpsetRange{13, 20}));
  // Of a change that no opset has yet that weir knows.
  EXPECT_THAT(OpsetsOf(Changed({9}, 99)), ElementsAre(OpsetRange{11, 25}));
}

TEST(OpsetsTest, TellsEachMeaning) {
  EXPECT_THAT(OpsetsOf(Def("Softmax")),
              ElementsAre(OpsetRange{11, 12}, OpsetRange{13, 25}));
  EXPECT_THAT(OpsetsOf(Def("Crop", "weir")), ElementsAre(OpsetRange{1, 1}));
}

// What the catalog tells is what compilation takes.
TEST(OpsetsTest, TellsWhatItTakes) {
  const std::unique_ptr<OpRegistry> ops = MakeOpRegistry();
  for (const OpDef* op : ops->List()) {
    const auto told = OpsetsOf(*op);
    ASSERT_FALSE(told.empty()) << op->name;
    for (int opset = 0; opset <= kNewestOnnxOpset + 1; ++opset) {
      const bool in =
          std::any_of(told.begin(), told.end(), [&](const OpsetRange& range) {
            return range.first <= opset && opset <= range.last;
          });
      EXPECT_EQ(CheckOpset(*op, opset).ok(), in) << op->name << " " << opset;
    }
    EXPECT_TRUE(std::is_sorted(op->meanings.begin(), op->meanings.end()))
        << op->name;
  }
}

TEST(OpsetsTest, HasItsOwnDomain) {
  EXPECT_TRUE(CheckOpset(Def("Crop", "weir"), kWeirOpset).ok());
  EXPECT_EQ(CheckOpset(Def("Crop", "weir"), kWeirOpset + 1).code(),
            absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace weir
