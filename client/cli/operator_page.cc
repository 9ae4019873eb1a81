#include "client/cli/operator_page.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/message_text.h"
#include "client/cli/tensor_argument.h"
#include "client/cli/wrapped_text.h"

namespace weir::client {
namespace {

struct Row {
  std::string name;
  std::string text;
};

// A heading, and a line for each row with their texts below one another.
void AppendRows(const char* heading, const std::vector<Row>& rows,
                std::string* page) {
  if (rows.empty()) return;
  absl::StrAppend(page, "\n", heading, "\n");
  size_t width = 0;
  for (const Row& row : rows) width = std::max(width, row.name.size());
  const size_t indent = width + 4;
  for (const Row& row : rows) {
    std::string line = absl::StrCat("  ", row.name);
    if (!row.text.empty()) line.resize(indent, ' ');
    absl::StrAppend(page, line, WrappedText(row.text, indent, indent), "\n");
  }
}

std::string TypesText(const v1::OperatorArgument& argument) {
  return absl::StrJoin(argument.types(), ", ", [](std::string* out, int type) {
    absl::StrAppend(out, DtypeName(type));
  });
}

Row ArgumentRow(const v1::OperatorArgument& argument) {
  std::vector<std::string> parts;
  if (argument.presence() == v1::OperatorArgument::PRESENCE_OPTIONAL) {
    parts.emplace_back("optional");
  }
  if (argument.types_size() > 0) parts.push_back(TypesText(argument));
  const bool variadic =
      argument.presence() == v1::OperatorArgument::PRESENCE_VARIADIC;
  return {absl::StrCat(argument.name(), variadic ? ", ..." : ""),
          absl::StrJoin(parts, "; ")};
}

std::string OpsetText(const v1::OperatorDescription& op) {
  return absl::StrJoin(op.opsets(), ", ",
                       [](std::string* out, const v1::OpsetRange& range) {
                         absl::StrAppend(out, range.first());
                         if (range.last() != range.first()) {
                           absl::StrAppend(out, " to ", range.last());
                         }
                       });
}

std::string DevicesText(const v1::OperatorSummary& summary) {
  return absl::StrJoin(
      summary.devices(), ", ", [](std::string* out, int device) {
        absl::StrAppend(out, EnumText(static_cast<v1::DeviceType>(device)));
      });
}

}  // namespace

std::string OperatorName(const v1::OperatorSummary& summary) {
  return summary.domain().empty()
             ? summary.name()
             : absl::StrCat(summary.domain(), ".", summary.name());
}

std::string OperatorPage(const v1::OperatorDescription& op) {
  const v1::OperatorSummary& summary = op.summary();
  std::string page = absl::StrCat(OperatorName(summary), "\n\n  ",
                                  WrappedText(op.description(), 2, 2), "\n\n");
  absl::StrAppend(
      &page, "Domain   ",
      summary.domain().empty() ? "ONNX (\"\" or ai.onnx)" : summary.domain(),
      "\n");
  if (op.opsets_size() > 0) {
    absl::StrAppend(&page, "Opsets   ", OpsetText(op), "\n");
  }
  absl::StrAppend(&page, "Devices  ",
                  summary.devices().empty() ? "none of this server's"
                                            : DevicesText(summary),
                  "\n");
  std::vector<Row> rows;
  for (const auto& input : op.inputs()) rows.push_back(ArgumentRow(input));
  AppendRows("Inputs", rows, &page);
  rows.clear();
  for (const auto& output : op.outputs()) rows.push_back(ArgumentRow(output));
  AppendRows("Outputs", rows, &page);
  rows.clear();
  for (const auto& attribute : op.attributes()) {
    rows.push_back(
        {attribute.name(),
         absl::StrCat(absl::AsciiStrToLower(EnumText(attribute.kind())),
                      attribute.required() ? ", required" : "",
                      attribute.description().empty() ? "" : ". ",
                      attribute.description())});
  }
  AppendRows("Attributes", rows, &page);
  return page;
}

}  // namespace weir::client
