// The table of docs/metrics.md is the one in the code, both ways.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/observe/metrics.h"

namespace weir {
namespace {

TEST(MetricsDocTest, HasWhatTheCodeHas) {
  const char* tests = std::getenv("WEIR_TEST_DATA");
  const std::string path =
      absl::StrCat(tests == nullptr ? "tests" : tests, "/../docs/metrics.md");
  std::ifstream file(path);
  ASSERT_TRUE(file.good()) << path;
  std::set<std::string> documented;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("| `weir_", 0) == 0 || line.rfind("| `nv_", 0) == 0) {
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

}  // namespace
}  // namespace weir
