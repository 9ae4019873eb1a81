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

// The name that stands for the type of a group: T, of several T1, T2, ...
std::string GroupName(uint32_t group, uint32_t groups) {
  return groups == 1 ? "T" : absl::StrCat("T", group);
}

uint32_t CountGroups(const v1::OperatorDescription& op) {
  uint32_t groups = 0;
  for (const auto& each : op.inputs()) {
    groups = std::max(groups, each.type_group());
  }
  return groups;
}

Row ArgumentRow(const v1::OperatorArgument& argument, uint32_t groups) {
  std::vector<std::string> parts;
  if (argument.presence() == v1::OperatorArgument::PRESENCE_OPTIONAL) {
    parts.emplace_back("optional");
  }
  if (argument.type_group() != 0) {
    parts.push_back(GroupName(argument.type_group(), groups));
  } else if (argument.types_size() > 0) {
    parts.push_back(TypesText(argument));
  }
  if (!argument.type_attribute().empty()) {
    parts.push_back(absl::StrCat(argument.types_size() > 0 ? "or " : "",
                                 "what ", argument.type_attribute(), " says"));
  }
  const bool variadic =
      argument.presence() == v1::OperatorArgument::PRESENCE_VARIADIC;
  return {absl::StrCat(argument.name(), variadic ? ", ..." : ""),
          absl::StrJoin(parts, "; ")};
}

// What the names of groups stand for.
std::vector<Row> GroupRows(const v1::OperatorDescription& op) {
  const uint32_t groups = CountGroups(op);
  std::vector<Row> rows;
  for (uint32_t group = 1; group <= groups; ++group) {
    for (const auto& input : op.inputs()) {
      if (input.type_group() != group) continue;
      rows.push_back({GroupName(group, groups), TypesText(input)});
      break;
    }
  }
  return rows;
}

// "11 to 25, with changes in 13 and 14": the ranges follow one another.
std::string OpsetText(const v1::OperatorDescription& op) {
  if (op.opsets().empty()) return "unknown";
  const int first = op.opsets(0).first();
  const int last = op.opsets(op.opsets_size() - 1).last();
  std::string text = absl::StrCat(first);
  if (last != first) absl::StrAppend(&text, " to ", last);
  for (int i = 1; i < op.opsets_size(); ++i) {
    absl::StrAppend(&text,
                    i == 1                      ? ", with changes in "
                    : i + 1 == op.opsets_size() ? " and "
                                                : ", ",
                    op.opsets(i).first());
  }
  return text;
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
  const uint32_t groups = CountGroups(op);
  std::vector<Row> rows;
  for (const auto& input : op.inputs()) {
    rows.push_back(ArgumentRow(input, groups));
  }
  AppendRows("Inputs", rows, &page);
  rows.clear();
  for (const auto& output : op.outputs()) {
    rows.push_back(ArgumentRow(output, groups));
  }
  AppendRows("Outputs", rows, &page);
  AppendRows("Types", GroupRows(op), &page);
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
