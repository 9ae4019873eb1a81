#include "client/cpp/space.h"

#include <algorithm>
#include <cstdint>

#include "client/cpp/space_queue.h"
#include "client/cpp/status_details.h"

namespace weir::client {
template <typename Kind>
uint64_t SpaceHandle<Kind>::number() const {
  return number_ == nullptr ? 0 : number_->value();
}
template class SpaceHandle<v1::TensorDescription>;
template class SpaceHandle<v1::ContextCreated>;
template class SpaceHandle<v1::TimelineCreated>;

namespace {

v1::Point PointOf(const Moment& moment) {
  v1::Point point;
  point.set_timeline(moment.timeline.number());
  point.set_value(moment.value);
  return point;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Space>> Space::Open(
    Client* client, const v1::OpenSpaceRequest& request) {
  absl::StatusOr<v1::OpenSpaceResponse> opened = client->OpenSpace(request);
  if (!opened.ok()) return opened.status();
  return std::unique_ptr<Space>(new Space(client, *std::move(opened)));
}

Space::Space(Client* client, v1::OpenSpaceResponse opened)
    : client_(client),
      opened_(std::move(opened)),
      // Half, for whatever is read is a work, too.
      queue_(std::make_shared<SpaceQueue>(
          client, opened_.token(),
          std::max<uint64_t>(1, opened_.quota().works() / 2))) {}

Space::~Space() { Close().IgnoreError(); }

absl::Status Space::Close() {
  queue_->Stop(absl::FailedPreconditionError("the space was closed here"));
  return client_->CloseSpace(opened_.token()).status();
}

absl::StatusOr<v1::Space> Space::Get() {
  return client_->GetSpace(opened_.token());
}

Context Space::NewContext(const v1::ContextCreate& settings) {
  auto number = queue_->NewNumber(SpaceNumber::Kind::kContext);
  SpaceQueue::Entry entry;
  *entry.command.mutable_context_create() = settings;
  entry.command.mutable_context_create()->set_context(number->value());
  entry.makes = {number};
  queue_->Add(std::move(entry));
  return Context(std::move(number));
}

Timeline Space::NewTimeline() {
  auto number = queue_->NewNumber(SpaceNumber::Kind::kTimeline);
  SpaceQueue::Entry entry;
  entry.command.mutable_timeline_create()->set_timeline(number->value());
  entry.makes = {number};
  queue_->Add(std::move(entry));
  return Timeline(std::move(number));
}

Tensor Space::Put(const v1::TensorSpec& spec, std::string elements,
                  const Context& context) {
  auto number = queue_->NewNumber(SpaceNumber::Kind::kTensor);
  SpaceQueue::Entry entry;
  v1::TensorPut* const put = entry.command.mutable_tensor_put();
  put->set_tensor(number->value());
  put->set_context(context.number());
  *put->mutable_value()->mutable_spec() = spec;
  put->mutable_value()->set_raw(std::move(elements));
  entry.makes = {number};
  entry.uses = {context.number_};
  queue_->Add(std::move(entry));
  return Tensor(std::move(number));
}

std::vector<Tensor> Space::Evaluate(const Evaluation& evaluation) {
  SpaceQueue::Entry entry;
  v1::EvaluateRequest* const request = entry.command.mutable_evaluate();
  *request->mutable_graph() = evaluation.graph;
  request->set_mode(evaluation.mode);
  request->set_context(evaluation.context.number());
  request->set_device(evaluation.device);
  request->set_label(evaluation.label);
  if (evaluation.rng_seed.has_value()) {
    request->set_rng_seed(*evaluation.rng_seed);
  }
  entry.uses.push_back(evaluation.context.number_);
  for (const auto& [name, tensor] : evaluation.inputs) {
    v1::NamedTensor* const input = request->add_inputs();
    input->set_name(name);
    input->mutable_value()->set_tensor(tensor.number());
    entry.uses.push_back(tensor.number_);
  }
  for (const Moment& moment : evaluation.after) {
    *request->add_after() = PointOf(moment);
    entry.uses.push_back(moment.timeline.number_);
  }
  for (const Moment& moment : evaluation.signal) {
    *request->add_signal() = PointOf(moment);
    entry.uses.push_back(moment.timeline.number_);
  }
  std::vector<Tensor> made;
  for (const std::string& name : evaluation.outputs) {
    auto number = queue_->NewNumber(SpaceNumber::Kind::kTensor);
    v1::OutputRequest* const output = request->add_outputs();
    output->set_name(name);
    output->set_tensor(number->value());
    entry.makes.push_back(number);
    made.push_back(Tensor(std::move(number)));
  }
  queue_->Add(std::move(entry));
  return made;
}

void Space::Signal(const Moment& moment) {
  SpaceQueue::Entry entry;
  v1::TimelineSignal* const signal = entry.command.mutable_timeline_signal();
  signal->set_timeline(moment.timeline.number());
  signal->set_value(moment.value);
  entry.uses = {moment.timeline.number_};
  queue_->Add(std::move(entry));
}

absl::StatusOr<v1::CommandResult> Space::RunOne(
    v1::Command command, std::vector<std::shared_ptr<SpaceNumber>> used,
    absl::Duration patience) {
  if (absl::Status usable = queue_->Judge(used, absl::OkStatus());
      !usable.ok()) {
    return usable;
  }
  std::vector<v1::Command> commands;
  commands.push_back(std::move(command));
  auto results = queue_->Run(std::move(commands), patience);
  absl::Status outcome = results.status();
  if (results.ok() && (*results)[0].has_error()) {
    outcome = ToStatus((*results)[0].error());
  }
  outcome = queue_->Judge(used, outcome);
  if (!outcome.ok()) return outcome;
  return std::move((*results)[0]);
}

absl::StatusOr<v1::TensorValue> Space::Read(const Tensor& tensor) {
  v1::Command command;
  command.mutable_tensor_get()->set_tensor(tensor.number());
  auto result = RunOne(std::move(command), {tensor.number_});
  if (!result.ok()) return result.status();
  if (result->tensor_get().outputs_size() != 1) {
    return absl::InternalError("the server answered without the tensor");
  }
  return std::move(
      *result->mutable_tensor_get()->mutable_outputs(0)->mutable_value());
}

absl::StatusOr<v1::TensorDescription> Space::Describe(const Tensor& tensor) {
  v1::Command command;
  command.mutable_tensor_describe()->set_tensor(tensor.number());
  auto result = RunOne(std::move(command), {tensor.number_});
  if (!result.ok()) return result.status();
  return std::move(*result->mutable_tensor_describe());
}

absl::Status Space::Wait(absl::Span<const Tensor> tensors,
                         absl::Span<const Moment> moments,
                         absl::Duration timeout) {
  timeout = std::min(timeout, kLongestWait);
  v1::Command command;
  v1::Wait* const wait = command.mutable_wait();
  wait->set_timeout_ns(std::max<int64_t>(absl::ToInt64Nanoseconds(timeout), 1));
  SpaceQueue::Numbers used;
  for (const Tensor& tensor : tensors) {
    wait->add_tensors(tensor.number());
    used.push_back(tensor.number_);
  }
  for (const Moment& moment : moments) {
    *wait->add_points() = PointOf(moment);
    used.push_back(moment.timeline.number_);
  }
  return RunOne(std::move(command), std::move(used), timeout).status();
}

absl::Status Space::Send() {
  const absl::Status sent = queue_->Run({}).status();
  absl::Status untold = queue_->TakeUntold();
  return untold.ok() ? sent : untold;
}

absl::StatusOr<std::vector<v1::CommandResult>> Space::Run(
    std::vector<v1::Command> commands) {
  return queue_->Run(std::move(commands));
}

}  // namespace weir::client
