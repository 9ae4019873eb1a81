// weir spaces: what callers keep on a server between calls.
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/commands.h"
#include "client/cli/json_output.h"
#include "client/cli/plain_text.h"
#include "client/cli/units.h"

namespace weir::client {
namespace {

constexpr char kSpaceFlag[] = "--space";
constexpr char kSpaceVariable[] = "WEIR_SPACE";
constexpr size_t kTokenBytes = 16;

// The token that the flag gives, or else the variable, which is not the flag's
// own: the parser would look at it for every command.
absl::StatusOr<std::string> ReadToken(const std::string& flag) {
  const char* const variable = std::getenv(kSpaceVariable);
  const bool given = !flag.empty() || variable == nullptr;
  const std::string text = given ? flag : variable;
  const char* const source = given ? kSpaceFlag : kSpaceVariable;
  bool is_hex = text.size() == 2 * kTokenBytes;
  for (const char c : text) {
    is_hex = is_hex && absl::ascii_isxdigit(static_cast<unsigned char>(c));
  }
  if (is_hex) return absl::HexStringToBytes(text);
  return absl::InvalidArgumentError(
      text.empty() ? absl::StrCat(source,
                                  ": give the token of a space, as \"weir "
                                  "spaces open\" prints it, or ",
                                  kSpaceVariable, " in the environment")
                   : absl::StrCat(source, ": a token has ", 2 * kTokenBytes,
                                  " hexadecimal digits"));
}

std::string HeldText(const v1::SpaceAmounts& held) {
  return absl::StrFormat(
      "%d tensors of %s, %d contexts, %d timelines, %d works, %d sessions",
      held.tensors(), ByteText(held.tensor_bytes()), held.contexts(),
      held.timelines(), held.works(), held.sessions());
}

std::string AmountText(uint64_t held, uint64_t quota) {
  return absl::StrCat(held, " of ", quota);
}

int Open(const GlobalFlags& global, const std::string& label, double lease) {
  v1::OpenSpaceRequest request;
  request.set_label(label);
  request.set_lease_ns(absl::ToInt64Nanoseconds(absl::Seconds(lease)));
  Client client(global.options());
  auto response = client.OpenSpace(request);
  if (!response.ok()) return Report(global, response.status());
  const std::string token = absl::BytesToHexString(response->token());
  if (global.json) {
    Json json = MessageJson(*response);
    json["token"] = token;
    PrintJson(json);
    return 0;
  }
  std::cout << absl::StrFormat("space %d, unused for at most %s\n%s\n",
                               response->id(),
                               DurationText(response->lease_ns()), token);
  return 0;
}

int Show(const GlobalFlags& global, const std::string& flag) {
  auto token = ReadToken(flag);
  if (!token.ok()) return ReportArgument(global, token.status());
  Client client(global.options());
  auto space = client.GetSpace(*token);
  if (!space.ok()) return Report(global, space.status());
  if (global.json) {
    PrintJson(MessageJson(*space));
    return 0;
  }
  const v1::SpaceAmounts& held = space->held();
  const v1::SpaceAmounts& quota = space->quota();
  std::cout << absl::StrFormat(
      "space %d \"%s\" of %s, opened %s, unused for at most %s\n"
      "  tensors    %s, %s of %s\n"
      "  contexts   %s\n"
      "  timelines  %s\n"
      "  works      %s\n"
      "  sessions   %s\n",
      space->id(), OneLine(space->label()), OneLine(space->identity()),
      TimeText(space->opened_unix_ns()), DurationText(space->lease_ns()),
      AmountText(held.tensors(), quota.tensors()),
      ByteText(held.tensor_bytes()), ByteText(quota.tensor_bytes()),
      AmountText(held.contexts(), quota.contexts()),
      AmountText(held.timelines(), quota.timelines()),
      AmountText(held.works(), quota.works()),
      AmountText(held.sessions(), quota.sessions()));
  return 0;
}

int List(const GlobalFlags& global) {
  Client client(global.options());
  auto response = client.ListSpaces();
  if (!response.ok()) return Report(global, response.status());
  if (global.json) {
    PrintJson(MessageJson(*response));
    return 0;
  }
  for (const v1::Space& space : response->spaces()) {
    std::cout << absl::StrFormat(
        "%6d  %-24s unused for %s of %s, %s\n", space.id(),
        OneLine(space.label()), DurationText(space.idle_ns()),
        DurationText(space.lease_ns()), HeldText(space.held()));
  }
  std::cout << absl::StrFormat("%d spaces with %s\n", response->total(),
                               HeldText(response->held()));
  return 0;
}

int Close(const GlobalFlags& global, const std::string& flag) {
  auto token = ReadToken(flag);
  if (!token.ok()) return ReportArgument(global, token.status());
  Client client(global.options());
  auto response = client.CloseSpace(*token);
  if (!response.ok()) return Report(global, response.status());
  if (global.json) {
    PrintJson(MessageJson(*response));
    return 0;
  }
  std::cout << "closed; it held " << HeldText(response->held()) << "\n";
  return 0;
}

}  // namespace

Command AddSpaces(CLI::App& app, const GlobalFlags& global) {
  auto token = std::make_shared<std::string>();
  auto label = std::make_shared<std::string>();
  auto lease = std::make_shared<double>(0);
  CLI::App* spaces = app.add_subcommand(
      "spaces", "Open, show, list and close what callers keep on a server");
  spaces->require_subcommand(1);
  CLI::App* open = spaces->add_subcommand(
      "open", "Open a space; its token, which is secret, is the last line");
  open->add_option("--label", *label, "What it is for, in lists and logs")
      ->check(Name());
  open->add_option("--lease", *lease,
                   "Seconds that it lives unused; without it as long as the "
                   "server says")
      ->check(Within(1e-9, 1e9));
  CLI::App* show =
      spaces->add_subcommand("show", "Tell what a space holds and may hold");
  CLI::App* list = spaces->add_subcommand(
      "list", "List one's own spaces; without a certificate, their sums");
  CLI::App* close =
      spaces->add_subcommand("close", "End a space and all that it holds");
  for (CLI::App* command : {show, close}) {
    command->add_option(
        kSpaceFlag, *token,
        absl::StrCat("Its token, in hexadecimal (or what ", kSpaceVariable,
                     " holds, which nobody else sees)"));
  }
  return {spaces, [=, &global] {
            if (open->parsed()) return Open(global, *label, *lease);
            if (show->parsed()) return Show(global, *token);
            if (list->parsed()) return List(global);
            return Close(global, *token);
          }};
}

}  // namespace weir::client
