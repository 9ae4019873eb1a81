// The table of docs/metrics.md is the one in the code, both ways.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/observe/metrics.h"

namespace weir {
namespace {

std::vector<std::string> LinesOf(absl::string_view page) {
  const char* tests = std::getenv("WEIR_TEST_DATA");
  const std::string path =
      absl::StrCat(tests == nullptr ? "tests" : tests, "/../docs/", page);
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

TEST(MetricsDocTest, HasWhatTheCodeHas) {
  std::set<std::string> documented;
  for (const std::string& line : LinesOf("metrics.md")) {
    if (line.rfind("| `weir_", 0) == 0 || line.rfind("| `nv_", 0) == 0 ||
        line.rfind("| `process_", 0) == 0) {
      EXPECT_TRUE(documented.insert(line).second) << "twice: " << line;
    }
  }
  std::set<std::string> defined;
  for (const MetricDef& def : MetricDefs()) {
    std::string labels;
    for (absl::string_view label :
         absl::StrSplit(def.labels, ',', absl::SkipEmpty())) {
      absl::StrAppend(&labels, labels.empty() ? "" : ", ", "`", label, "`");
    }
    defined.insert(
        absl::StrCat("| `", def.name, "` | ", MetricTypeName(def.type), " | ",
                     labels, labels.empty() ? "" : " ", "| ", def.help, " |"));
  }
  EXPECT_EQ(documented, defined);
}

// What docs/errors.md tells callers to try again for want of room or time, and
// of whose RPCs the calls are counted.
TEST(MetricsDocTest, CountsTheRefusalsThatCallersMeet) {
  std::set<std::string> told;
  for (const std::string& line : LinesOf("errors.md")) {
    std::vector<std::string> cells = absl::StrSplit(line, '|');
    for (std::string& cell : cells) absl::StripAsciiWhitespace(&cell);
    // Before the first bar, reason, code, metadata, retry after, when.
    if (cells.size() != 7 || cells[4] == "none" ||
        (cells[2] != "`RESOURCE_EXHAUSTED`" &&
         cells[2] != "`DEADLINE_EXCEEDED`") ||
        cells[5].rfind("in process: ", 0) == 0 ||
        absl::StrContains(cells[5], "`grpc.health.v1.Health`")) {
      continue;
    }
    const std::string name = cells[1].substr(1, cells[1].size() - 2);
    EXPECT_TRUE(told.insert(name).second) << "twice: " << name;
  }
  told.insert({std::string(Metrics::kDeadlinePassed), "OTHER"});
  EXPECT_EQ(told, std::set<std::string>(Metrics::kRefusals.begin(),
                                        Metrics::kRefusals.end()));
}

}  // namespace
}  // namespace weir
