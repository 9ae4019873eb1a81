#include "client/cli/message_text.h"

#include <google/protobuf/text_format.h>

#include <cstdint>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "client/cli/units.h"
#include "proto/weir/v1/sync_report.pb.h"

namespace weir::client {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::TextFormat;

// "WORK_STATE_" of WorkState.
std::string Prefix(const EnumDescriptor& type) {
  std::string prefix;
  for (const char c : type.name()) {
    if (absl::ascii_isupper(static_cast<unsigned char>(c)) && !prefix.empty()) {
      prefix += '_';
    }
    prefix += absl::ascii_toupper(static_cast<unsigned char>(c));
  }
  return prefix + "_";
}

// Prints one enumeration.
class EnumPrinter : public TextFormat::FastFieldValuePrinter {
 public:
  explicit EnumPrinter(const EnumDescriptor& type) : type_(type) {}
  void PrintEnum(int32_t number, const std::string&,
                 TextFormat::BaseTextGenerator* out) const override {
    out->PrintString(EnumText(type_, number));
  }

 private:
  const EnumDescriptor& type_;
};

// Prints an integer whose name ends with its unit: "queue: 7.98 ms" of
// queue_ns.
class UnitPrinter : public TextFormat::FastFieldValuePrinter {
 public:
  using ToText = std::string (*)(uint64_t number);

  UnitPrinter(std::string name, ToText to_text)
      : name_(std::move(name)), to_text_(to_text) {}
  using FastFieldValuePrinter::PrintFieldName;
  void PrintFieldName(const google::protobuf::Message&,
                      const google::protobuf::Reflection*,
                      const FieldDescriptor*,
                      TextFormat::BaseTextGenerator* out) const override {
    out->PrintString(name_);
  }
  void PrintInt64(int64_t number,
                  TextFormat::BaseTextGenerator* out) const override {
    out->PrintString(to_text_(static_cast<uint64_t>(number)));
  }
  void PrintUInt64(uint64_t number,
                   TextFormat::BaseTextGenerator* out) const override {
    out->PrintString(to_text_(number));
  }

 private:
  const std::string name_;
  const ToText to_text_;
};

std::string SpanText(uint64_t ns) {
  return DurationText(static_cast<int64_t>(ns));
}

std::string PointText(uint64_t ns) {
  return TimeText(static_cast<int64_t>(ns));
}

// Null for a field whose value the text format's own printer tells best.
std::unique_ptr<TextFormat::FastFieldValuePrinter> PrinterOf(
    const FieldDescriptor& field) {
  if (field.enum_type() != nullptr) {
    return std::make_unique<EnumPrinter>(*field.enum_type());
  }
  if (field.cpp_type() != FieldDescriptor::CPPTYPE_INT64 &&
      field.cpp_type() != FieldDescriptor::CPPTYPE_UINT64) {
    return nullptr;
  }
  absl::string_view name = field.name();
  if (absl::ConsumeSuffix(&name, "_bytes")) {
    return std::make_unique<UnitPrinter>(std::string(name), ByteText);
  }
  if (absl::ConsumeSuffix(&name, "_ns")) {
    const bool time = field.containing_type() == v1::WorkTimes::descriptor();
    return std::make_unique<UnitPrinter>(std::string(name),
                                         time ? PointText : SpanText);
  }
  return nullptr;
}

void AddPrinters(const Descriptor& type, TextFormat::Printer* printer,
                 std::set<const Descriptor*>* seen) {
  if (!seen->insert(&type).second) return;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (auto of_field = PrinterOf(field)) {
      // The printer takes it if it had none for this field.
      if (printer->RegisterFieldValuePrinter(&field, of_field.get())) {
        (void)of_field.release();
      }
    } else if (field.message_type() != nullptr) {
      AddPrinters(*field.message_type(), printer, seen);
    }
  }
}

}  // namespace

std::string MessageText(const google::protobuf::Message& message) {
  TextFormat::Printer printer;
  std::set<const Descriptor*> seen;
  AddPrinters(*message.GetDescriptor(), &printer, &seen);
  std::string text;
  printer.PrintToString(message, &text);
  return text;
}

std::string EnumText(const EnumDescriptor& type, int number) {
  const auto* value = type.FindValueByNumber(number);
  if (value == nullptr) return absl::StrCat(number);
  return std::string(absl::StripPrefix(value->name(), Prefix(type)));
}

}  // namespace weir::client
