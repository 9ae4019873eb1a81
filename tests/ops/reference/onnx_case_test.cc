#include "tests/ops/reference/onnx_case.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace weir {
namespace {

CaseTensor Floats(const std::vector<float>& values) {
  CaseTensor tensor;
  tensor.dtype = DType::kFloat;
  tensor.dims = {static_cast<int64_t>(values.size())};
  tensor.bytes.resize(values.size() * sizeof(float));
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

TEST(CompareWithAnswerTest, CountsUnitsInTheLastPlace) {
  const float next = std::nextafterf(1.0f, 2.0f);
  const float after = std::nextafterf(next, 2.0f);
  EXPECT_TRUE(CompareWithAnswer(Floats({1}), Floats({1}), 0, 0).ok());
  EXPECT_FALSE(CompareWithAnswer(Floats({1}), Floats({next}), 0, 0).ok());
  EXPECT_TRUE(CompareWithAnswer(Floats({1}), Floats({next}), 1, 0).ok());
  EXPECT_FALSE(CompareWithAnswer(Floats({1}), Floats({after}), 1, 0).ok());
}

TEST(CompareWithAnswerTest, MeasuresSmallNumbersByTheFloor) {
  const CaseTensor small = Floats({1e-6f});
  EXPECT_FALSE(CompareWithAnswer(small, Floats({1.1e-6f}), 1, 0).ok());
  EXPECT_TRUE(CompareWithAnswer(small, Floats({1.1e-6f}), 1, 1.0).ok());
}

TEST(CompareWithAnswerTest, TellsSpecialValuesApart) {
  const float nan = std::nanf("");
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(CompareWithAnswer(Floats({nan}), Floats({nan}), 0, 0).ok());
  EXPECT_FALSE(CompareWithAnswer(Floats({nan}), Floats({1}), 64, 1).ok());
  EXPECT_FALSE(CompareWithAnswer(Floats({1}), Floats({nan}), 64, 1).ok());
  EXPECT_TRUE(
      CompareWithAnswer(Floats({infinity}), Floats({infinity}), 0, 0).ok());
  EXPECT_FALSE(
      CompareWithAnswer(Floats({infinity}), Floats({-infinity}), 64, 1).ok());
  EXPECT_FALSE(
      CompareWithAnswer(Floats({infinity}), Floats({3e38f}), 64, 1).ok());
}

TEST(CompareWithAnswerTest, WantsTypeAndShape) {
  CaseTensor row = Floats({1, 2});
  row.dims = {1, 2};
  EXPECT_FALSE(CompareWithAnswer(Floats({1, 2}), row, 64, 1).ok());
  CaseTensor other = Floats({1});
  other.dtype = DType::kInt32;
  EXPECT_FALSE(CompareWithAnswer(Floats({1}), other, 64, 1).ok());
}

TEST(CompareWithAnswerTest, WantsIntegersExactly) {
  CaseTensor expected = Floats({1, 2});
  expected.dtype = DType::kInt32;
  CaseTensor actual = expected;
  EXPECT_TRUE(CompareWithAnswer(expected, actual, 64, 1).ok());
  actual.bytes[4] ^= 1;
  EXPECT_FALSE(CompareWithAnswer(expected, actual, 64, 1).ok());
}

TEST(ReadOnnxCasesTest, ReadsAFileOfCases) {
  const char* tests = std::getenv("WEIR_TEST_DATA");
  ASSERT_NE(tests, nullptr) << "run by ctest, or set WEIR_TEST_DATA to tests/";
  const auto cases =
      ReadOnnxCases(std::string(tests) + "/ops/reference/cases/Add.pb");
  ASSERT_TRUE(cases.ok()) << cases.status();
  EXPECT_GT(cases->size(), 10u);
  for (const OnnxCase& one : *cases) {
    EXPECT_EQ(one.name.rfind("Add_", 0), 0u) << one.name;
    EXPECT_EQ(one.inputs.size(), 2u);
    EXPECT_EQ(one.outputs.size(), 1u);
    // An answer agrees with itself.
    EXPECT_TRUE(CompareWithAnswer(one.outputs[0], one.outputs[0], 0, 0).ok());
  }
}

TEST(ReadOnnxCasesTest, NamesAFileThatIsMissing) {
  const auto cases = ReadOnnxCases("/nowhere/Add.pb");
  EXPECT_EQ(cases.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(cases.status().message().find("/nowhere/Add.pb"),
            absl::string_view::npos);
}

}  // namespace
}  // namespace weir
