// What docs/operators.md lists is what the registry has, both ways.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "kernels/ops/registry.h"

namespace weir {
namespace {

std::vector<std::string> Lines() {
  const char* tests = std::getenv("WEIR_TEST_DATA");
  const std::string path =
      absl::StrCat(tests == nullptr ? "tests" : tests, "/../docs/operators.md");
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// The cells of the table rows between the heading and the next one.
std::vector<std::vector<std::string>> Rows(const std::string& heading) {
  std::vector<std::vector<std::string>> rows;
  bool inside = false;
  for (const std::string& line : Lines()) {
    if (line.rfind("## ", 0) == 0) inside = line == heading;
    if (!inside || line.rfind("| ", 0) != 0) continue;
    std::vector<std::string>& row = rows.emplace_back();
    for (absl::string_view cell :
         absl::StrSplit(line, '|', absl::SkipEmpty())) {
      row.emplace_back(absl::StripAsciiWhitespace(cell));
    }
  }
  return rows;
}

// "A, B and C".
std::multiset<std::string> Names(absl::string_view list) {
  const std::string commas = absl::StrReplaceAll(list, {{" and ", ", "}});
  return absl::StrSplit(commas, ", ", absl::SkipEmpty());
}

std::set<std::string> Operators(const OpRegistry& registry,
                                std::string_view domain) {
  std::set<std::string> names;
  for (const OpDef* def : registry.List()) {
    if (def->domain == domain) names.insert(std::string(def->name));
  }
  return names;
}

bool IsOpset(const std::string& cell) {
  return !cell.empty() &&
         cell.find_first_not_of("0123456789") == std::string::npos;
}

TEST(OperatorsDocTest, ListsEveryOnnxOperatorOnce) {
  std::multiset<std::string> documented;
  for (const auto& row : Rows("## ONNX")) {
    if (row.size() != 2 || row[0] == "Family" || row[0] == "Opset" ||
        IsOpset(row[0])) {
      continue;
    }
    documented.merge(Names(row[1]));
  }
  const std::set<std::string> defined = Operators(*MakeOpRegistry(), "");
  EXPECT_EQ(documented,
            std::multiset<std::string>(defined.begin(), defined.end()));
}

TEST(OperatorsDocTest, ListsEveryMeaning) {
  std::map<std::string, std::multiset<std::string>> documented;
  for (const auto& row : Rows("## ONNX")) {
    if (row.size() == 2 && IsOpset(row[0])) documented[row[0]] = Names(row[1]);
  }
  std::map<std::string, std::multiset<std::string>> defined;
  const auto registry = MakeOpRegistry();
  for (const OpDef* def : registry->List()) {
    if (!def->domain.empty()) continue;
    for (int opset : def->meanings) {
      defined[absl::StrCat(opset)].insert(std::string(def->name));
    }
  }
  EXPECT_EQ(documented, defined);
}

// With their attributes, in backticks.
TEST(OperatorsDocTest, ListsEveryOperatorOfItsOwn) {
  const auto registry = MakeOpRegistry({.test_operators = true});
  std::multiset<std::string> documented;
  for (const auto& row : Rows("## weir")) {
    const std::vector<std::string> parts =
        absl::StrSplit(row[0], '`', absl::SkipWhitespace());
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::string name(absl::StripAsciiWhitespace(parts[i]));
      if (name == "," || name == "Operator") continue;
      documented.insert(name);
      const OpDef* def = registry->Find("weir", name);
      if (def == nullptr || def->test_only) continue;
      const std::string attributes = row.size() > 2 ? row[2] : "";
      for (const AttributeDef& attribute : def->attributes) {
        EXPECT_NE(attributes.find("`" + std::string(attribute.name) + "`"),
                  std::string::npos)
            << name << " lacks " << attribute.name;
      }
      EXPECT_EQ(static_cast<size_t>(
                    std::count(attributes.begin(), attributes.end(), '`')),
                2 * def->attributes.size())
          << name << ": " << attributes;
    }
  }
  const std::set<std::string> defined = Operators(*registry, "weir");
  EXPECT_EQ(documented,
            std::multiset<std::string>(defined.begin(), defined.end()));
}

TEST(OperatorsDocTest, SaysWhoTakesStrings) {
  constexpr char kBegin[] = "Strings are taken by ";
  constexpr char kEnd[] = " on the CPU.";
  std::multiset<std::string> documented;
  for (const std::string& line : Lines()) {
    if (line.rfind(kBegin, 0) != 0) continue;
    const size_t end = line.find(kEnd);
    ASSERT_NE(end, std::string::npos) << line;
    const size_t begin = sizeof(kBegin) - 1;
    documented = Names(line.substr(begin, end - begin));
  }
  const auto registry = MakeOpRegistry();
  std::multiset<std::string> defined;
  for (const OpDef* def : registry->List()) {
    const bool takes = std::any_of(
        def->inputs.begin(), def->inputs.end(),
        [](const InputDef& input) { return input.types.Has(DType::kString); });
    const bool gives =
        std::any_of(def->attributes.begin(), def->attributes.end(),
                    [](const AttributeDef& attribute) {
                      return attribute.name == "value_strings";
                    });
    if (def->domain.empty() && (takes || gives)) {
      defined.insert(std::string(def->name));
    }
  }
  EXPECT_EQ(documented, defined);
}

}  // namespace
}  // namespace weir
