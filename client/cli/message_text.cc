#include "client/cli/message_text.h"

#include <google/protobuf/text_format.h>

#include <memory>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

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

void AddEnumPrinters(const Descriptor& type, TextFormat::Printer* printer,
                     std::set<const Descriptor*>* seen) {
  if (!seen->insert(&type).second) return;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.enum_type() != nullptr) {
      auto of_field = std::make_unique<EnumPrinter>(*field.enum_type());
      // The printer takes it if it had none for this field.
      if (printer->RegisterFieldValuePrinter(&field, of_field.get())) {
        (void)of_field.release();
      }
    } else if (field.message_type() != nullptr) {
      AddEnumPrinters(*field.message_type(), printer, seen);
    }
  }
}

}  // namespace

std::string MessageText(const google::protobuf::Message& message) {
  TextFormat::Printer printer;
  std::set<const Descriptor*> seen;
  AddEnumPrinters(*message.GetDescriptor(), &printer, &seen);
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
