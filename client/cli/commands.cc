#include "client/cli/commands.h"

#include <algorithm>
#include <iostream>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/json_output.h"
#include "client/cli/plain_text.h"
#include "client/cli/tensor_argument.h"
#include "client/cli/wrapped_text.h"
#include "client/cpp/status_details.h"

namespace weir::client {
namespace {

// Whether the page of the command has a flag or a variable of this name.
bool PageHas(const CLI::App& command, const std::string& word) {
  if (word.rfind("--", 0) != 0 && word.rfind("WEIR_", 0) != 0) return false;
  const std::vector<const CLI::Option*> options = command.get_options();
  return std::any_of(
      options.begin(), options.end(), [&](const CLI::Option* option) {
        return option->get_name() == word || option->get_envname() == word ||
               absl::StrContains(option->get_description(), word);
      });
}

// As "weir admin drain".
std::string CommandToHelp(const CLI::App& app, const std::string& what) {
  std::vector<const CLI::App*> commands = {&app};
  for (;;) {
    const std::vector<CLI::App*> given = commands.back()->get_subcommands();
    if (given.empty()) break;
    commands.push_back(given.front());
  }
  const std::string word = what.substr(0, what.find_first_of(":, "));
  const auto owner =
      std::find_if(commands.rbegin(), commands.rend(),
                   [&](const CLI::App* each) { return PageHas(*each, word); });
  if (owner != commands.rend()) commands.erase(owner.base(), commands.end());
  return absl::StrJoin(commands, " ",
                       [](std::string* text, const CLI::App* each) {
                         absl::StrAppend(text, each->get_name());
                       });
}

}  // namespace

ClientOptions GlobalFlags::options() const {
  ClientOptions options;
  options.address = server;
  options.timeout = absl::Seconds(timeout_seconds);
  options.tls = tls;
  return options;
}

CLI::Validator Within(double least, double most) {
  return CLI::Validator(
      [least, most](const std::string& text) -> std::string {
        double number = 0;
        if (CLI::detail::lexical_cast(text, number) && number >= least &&
            number <= most) {
          return "";
        }
        return absl::StrCat("Value ", text, " not in range ", least, " to ",
                            most);
      },
      absl::StrCat("FLOAT in [", least, " - ", most, "]"));
}

CLI::Validator Name() {
  return CLI::Validator(
      [](const std::string& text) -> std::string {
        return IsUtf8(text)
                   ? ""
                   : absl::StrCat("\"", absl::CEscape(text), "\" is not UTF-8");
      },
      "");
}

int Report(const GlobalFlags& flags, const absl::Status& status) {
  if (status.ok()) return 0;
  if (flags.json) {
    PrintErrorJson(ErrorJson(status));
  } else {
    std::cerr << "weir: " << OneLine(ErrorText(status)) << "\n";
  }
  return 1;
}

int ReportUsage(const GlobalFlags& flags, const std::string& what) {
  const std::string help =
      absl::StrCat(CommandToHelp(*flags.app, what), " --help");
  if (flags.json) {
    PrintErrorJson(UsageJson(what, help));
  } else {
    std::cerr << "weir: " << OneLine(what) << "; see " << help << "\n";
  }
  return 2;
}

int ReportArgument(const GlobalFlags& flags, const absl::Status& status) {
  return absl::IsInvalidArgument(status)
             ? ReportUsage(flags, std::string(status.message()))
             : Report(flags, status);
}

std::string InputHelp() {
  return absl::StrCat(
      "Inputs:\n"
      "  x=float:2x3:1,2,3,4,5,6  NAME=DTYPE:DIMS:V,V,...  the elements\n"
      "  x=@x.f32:float:2x3       NAME=@FILE:DTYPE:DIMS    raw little-endian "
      "elements\n"
      "  file=@photo.jpg          NAME=@FILE               its bytes as uint8 "
      "[n]\n\n"
      "  NAME   ends before the first = behind which a DTYPE or @ stands\n"
      "  DTYPE  ",
      WrappedText(TypeNames(), 9, 9),
      "\n"
      "  DIMS   as 3 or 1x8x8; scalar for none (s=float:scalar:7); with a 0 "
      "there are\n"
      "         no elements (x=float:0x8:)\n");
}

}  // namespace weir::client
