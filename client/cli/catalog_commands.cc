// weir models, devices, ops, status: what a server is and offers.
#include <iostream>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/commands.h"
#include "client/cli/json_output.h"
#include "client/cli/message_text.h"
#include "client/cli/operator_page.h"
#include "client/cli/tensor_argument.h"
#include "client/cli/units.h"

namespace weir::client {
namespace {

constexpr absl::Duration kProbeTimeout = absl::Seconds(1);

std::string SpecText(const v1::NamedTensorSpec& spec) {
  const std::vector<int64_t> shape(spec.spec().shape().begin(),
                                   spec.spec().shape().end());
  return absl::StrCat(spec.name(), " ",
                      Summary(spec.spec().dtype(), shape, "", 0));
}

int PrintMessage(const google::protobuf::Message& message) {
  PrintJson(MessageJson(message));
  return 0;
}

// A model that was refused before its versions were looked at has none.
std::string VersionText(const v1::ModelVersion& version) {
  return version.version() == 0 ? "-" : absl::StrCat(version.version());
}

int Models(const GlobalFlags& global) {
  Client client(global.options());
  auto response = client.ListModels();
  if (!response.ok()) return Report(global, response.status());
  if (global.json) return PrintMessage(*response);
  for (const v1::Model& model : response->models()) {
    for (const v1::ModelVersion& version : model.versions()) {
      std::cout << absl::StrFormat("%-24s %4s  %-12s %s\n", model.name(),
                                   VersionText(version),
                                   EnumText(version.state()), version.reason());
    }
    if (model.max_batch_size() > 0) {
      std::cout << "    max batch size " << model.max_batch_size() << "\n";
    }
    for (const auto& input : model.inputs()) {
      std::cout << "    in   " << SpecText(input) << "\n";
    }
    for (const auto& output : model.outputs()) {
      std::cout << "    out  " << SpecText(output) << "\n";
    }
  }
  if (response->models().empty()) {
    std::cout
        << "no models: weir-server --model-repository=FOLDER serves those "
           "that lie there as NAME/VERSION/model.onnx\n";
  }
  return 0;
}

int Devices(const GlobalFlags& global) {
  Client client(global.options());
  auto response = client.ListDevices();
  if (!response.ok()) return Report(global, response.status());
  if (global.json) return PrintMessage(*response);
  for (const v1::Device& device : response->devices()) {
    std::cout << absl::StrFormat(
        "%-8s %-8s %s\n  uuid %s\n  %d compute units, %.1f GiB (%.1f free), "
        "%s, %s%s%s\n",
        device.name(), device.is_default() ? "default" : "", device.product(),
        device.uuid(), device.compute_units(),
        static_cast<double>(device.memory_bytes()) / (1 << 30),
        static_cast<double>(device.memory_free_bytes()) / (1 << 30),
        device.driver_version(), device.runtime_version(),
        device.capability().empty() ? "" : ", capability ",
        device.capability());
    if (!device.failure().empty()) {
      std::cout << "  LOST: " << device.failure() << "\n";
    }
  }
  return 0;
}

// "weir.Resize" for a name that only its domain or case keeps from being one;
// "" where there is none.
std::string Meant(const std::string& name,
                  const v1::ListOperatorsResponse& operators) {
  const std::string last = name.substr(name.rfind('.') + 1);
  for (const v1::OperatorSummary& op : operators.operators()) {
    if (absl::EqualsIgnoreCase(op.name(), last)) {
      return OperatorName(op);
    }
  }
  return "";
}

int DescribeOp(const GlobalFlags& global, const std::string& name) {
  Client client(global.options());
  // "weir.Resize", "ai.onnx.Add"; "Add" is of domain "".
  const size_t dot = name.rfind('.');
  auto op =
      dot == std::string::npos
          ? client.DescribeOperator("", name)
          : client.DescribeOperator(name.substr(0, dot), name.substr(dot + 1));
  if (absl::IsNotFound(op.status())) {
    auto operators = client.ListOperators();
    if (!operators.ok()) return Report(global, operators.status());
    const std::string meant = Meant(name, *operators);
    if (meant.empty()) return Report(global, op.status());
    return Report(
        global, absl::NotFoundError(absl::StrCat(
                    "no operator \"", name, "\"; did you mean ", meant, "?")));
  }
  if (!op.ok()) return Report(global, op.status());
  if (global.json) return PrintMessage(*op);
  std::cout << OperatorPage(*op);
  return 0;
}

int ListOps(const GlobalFlags& global) {
  Client client(global.options());
  auto response = client.ListOperators();
  if (!response.ok()) return Report(global, response.status());
  if (global.json) return PrintMessage(*response);
  for (const v1::OperatorSummary& op : response->operators()) {
    const std::string devices =
        absl::StrJoin(op.devices(), ",", [](std::string* out, int device) {
          absl::StrAppend(out, EnumText(static_cast<v1::DeviceType>(device)));
        });
    std::cout << absl::StrFormat("%-26s %-9s %s\n", OperatorName(op), devices,
                                 op.summary());
  }
  return 0;
}

// What a container's health check runs: one call, one line, soon over.
int Probe(const GlobalFlags& global, const std::string& service) {
  ClientOptions options = global.options();
  if (!global.timeout_given) options.timeout = kProbeTimeout;
  auto serving = Client(std::move(options)).IsServing(service);
  if (!serving.ok()) return Report(global, serving.status());
  if (global.json) {
    PrintJson({{"service", service}, {"serving", *serving}});
  } else {
    std::cout << (*serving ? "SERVING\n" : "NOT_SERVING\n");
  }
  return *serving ? 0 : 1;
}

// Of less than a second, FormatDuration leaves the unit out.
std::string UpText(absl::Duration up) {
  up = absl::Trunc(up, absl::Seconds(1));
  return up > absl::ZeroDuration() ? absl::FormatDuration(up) : "0s";
}

int Status(const GlobalFlags& global) {
  Client client(global.options());
  auto info = client.GetServerInfo();
  if (!info.ok()) return Report(global, info.status());
  if (global.json) {
    PrintMessage(*info);
    return info->ready() ? 0 : 1;
  }
  std::cout << info->name() << " " << info->version() << "  "
            << (info->ready() ? "ready" : "not ready: " + info->reason())
            << "\n  up "
            << UpText(absl::Now() - absl::FromUnixNanos(info->started_ns()))
            << ", incarnation " << info->incarnation()
            << "\n  limits: " << info->limits().streams()
            << " streams of each device, queue of "
            << info->limits().queue_length() << " requests and "
            << ByteText(info->limits().queue_bytes()) << ", messages of "
            << ByteText(info->limits().max_message_bytes()) << "\n";
  return info->ready() ? 0 : 1;
}

}  // namespace

Command AddModels(CLI::App& app, const GlobalFlags& global) {
  return {app.add_subcommand("models", "List the served models"),
          [&global] { return Models(global); }};
}

Command AddDevices(CLI::App& app, const GlobalFlags& global) {
  return {app.add_subcommand("devices", "List the server's devices"),
          [&global] { return Devices(global); }};
}

Command AddOps(CLI::App& app, const GlobalFlags& global) {
  auto name = std::make_shared<std::string>();
  CLI::App* ops = app.add_subcommand(
      "ops", "List the operators, or tell all about one of them");
  ops->add_option("name", *name, "An operator: Add, weir.Resize")
      ->check(Name());
  return {ops, [name, &global] {
            return name->empty() ? ListOps(global) : DescribeOp(global, *name);
          }};
}

Command AddStatus(CLI::App& app, const GlobalFlags& global) {
  auto probe = std::make_shared<bool>(false);
  auto service = std::make_shared<std::string>();
  CLI::App* status =
      app.add_subcommand("status", "Whether the server is ready (exit code 0)");
  CLI::Option* const flag = status->add_flag(
      "--probe", *probe, "Ask the health service only, for a health check");
  status
      ->add_option("--service", *service,
                   "What to probe: live, model/NAME; without it whether the\n"
                   "server is ready")
      ->check(Name())
      ->needs(flag);
  return {status, [probe, service, &global] {
            return *probe ? Probe(global, *service) : Status(global);
          }};
}

}  // namespace weir::client
