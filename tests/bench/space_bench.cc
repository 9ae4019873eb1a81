// What it costs to keep tensors between calls: 4 KB evaluations (y = x + x) one
// after another by one caller, sent and read back with each call, kept in a
// space with each call, as commands of a Run, and through a session, which has
// several in flight; there sent and read back, too. A chain of 20, of which the
// end alone is read: as calls that carry the tensor there and back, which is
// all that a server without spaces offers, and as one Run. And the device's
// time of such a chain that is deferred, beside that of the same nodes in one
// graph. A real weir-server, on all CPUs beside its caller. Usage:
//   space_bench [DEVICE]     (default: cpu)
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/weir/v1/evaluator.grpc.pb.h"
#include "proto/weir/v1/spaces.grpc.pb.h"
#include "tests/bench/server_process.h"

namespace weir::bench {
namespace {

constexpr int64_t kElements = 1024;
constexpr int kCommands = 64;  // of a Run
constexpr int kChain = 20;
constexpr uint64_t kContext = 1;
constexpr int kRounds = 5;
constexpr auto kRound = std::chrono::milliseconds(1000);
// Commands of a session's message, and those that are not answered.
constexpr uint64_t kBatch = 32;
constexpr uint64_t kOutstanding = 128;
// On a GPU a session carries so many times what calls do, one after another.
constexpr double kLeastSessionGain = 5;
// Of a chain: calls that carry its tensors take at least so many times what one
// Run does.
constexpr double kLeastGain = 2;
// How long a chain that is deferred takes the device, of what the same nodes in
// one graph take.
constexpr uint64_t kDeferring = 2;  // a context
// Another, of the session: it may be in it when the next round begins.
constexpr uint64_t kOfSession = 3;
constexpr int kDeferredRounds = 50;
constexpr int64_t kDeferredElements = 1 << 20;
constexpr double kMostDeferred = 1.3;

class Caller {
 public:
  explicit Caller(const std::string& address)
      : channel_(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials())) {
    grpc::ClientContext context;
    v1::OpenSpaceResponse opened;
    Check(v1::Spaces::NewStub(channel_)->Open(&context, {}, &opened));
    token_ = opened.token();
  }

  v1::Evaluator::Stub& evaluator() { return *evaluator_; }
  const std::string& token() const { return token_; }

  v1::EvaluateResponse Evaluate(const v1::EvaluateRequest& request,
                                bool in_space) {
    grpc::ClientContext context;
    if (in_space) context.AddMetadata("weir-space-bin", token_);
    v1::EvaluateResponse response;
    Check(evaluator_->Evaluate(&context, request, &response));
    return response;
  }

  v1::RunResponse Run(const v1::RunRequest& request) {
    grpc::ClientContext context;
    context.AddMetadata("weir-space-bin", token_);
    v1::RunResponse response;
    Check(evaluator_->Run(&context, request, &response));
    for (const v1::CommandResult& result : response.results()) {
      if (!result.has_error()) continue;
      std::fprintf(stderr, "%s\n", result.error().message().c_str());
      std::exit(1);
    }
    return response;
  }

 private:
  static void Check(const grpc::Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "%s\n", status.error_message().c_str());
    std::exit(1);
  }

  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Evaluator::Stub> evaluator_ =
      v1::Evaluator::NewStub(channel_);
  std::string token_;
};

// One thread sends batches of a command, and takes answers meanwhile.
class SessionCaller {
 public:
  SessionCaller(v1::Evaluator::Stub& evaluator, const std::string& token) {
    context_.AddMetadata("weir-space-bin", token);
    stream_ = evaluator.Session(&context_);
    v1::SessionRequest open;
    open.mutable_open()->set_session(1);
    stream_->Write(open);
  }
  ~SessionCaller() {
    stream_->WritesDone();
    while (answered_ < sent_) Receive();
    stream_->Finish();
  }

  void Run(const v1::EvaluateRequest& request) {
    v1::SessionRequest batch;
    batch.set_first_sequence(sent_ + 1);
    batch.set_acknowledged(answered_);
    for (uint64_t i = 0; i < kBatch; ++i) {
      *batch.add_commands()->mutable_evaluate() = request;
    }
    sent_ += kBatch;
    if (!stream_->Write(batch)) Fail(stream_->Finish().error_message());
    while (sent_ - answered_ > kOutstanding - kBatch) Receive();
  }

 private:
  static void Fail(const std::string& why) {
    std::fprintf(stderr, "%s\n", why.c_str());
    std::exit(1);
  }
  // They are of one context, and so are answered in their order.
  void Receive() {
    v1::SessionEvent event;
    if (!stream_->Read(&event)) Fail(stream_->Finish().error_message());
    for (const v1::SessionResult& result : event.results()) {
      if (result.result().has_error()) Fail(result.result().error().message());
      if (result.sequence() != ++answered_) Fail("out of order");
    }
  }

  grpc::ClientContext context_;
  std::unique_ptr<
      grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionEvent>>
      stream_;
  uint64_t sent_ = 0;
  uint64_t answered_ = 0;
};

v1::EvaluateRequest Double() {
  v1::EvaluateRequest request;
  v1::GraphDefinition* const graph =
      request.mutable_graph()->mutable_definition();
  graph->add_inputs()->set_name(std::string("x"));
  v1::Node* const node = graph->add_nodes();
  node->set_op(std::string("Add"));
  for (int i = 0; i < 2; ++i) node->add_inputs(std::string("x"));
  node->add_outputs(std::string("y"));
  graph->add_outputs(std::string("y"));
  request.add_inputs()->set_name(std::string("x"));
  request.add_outputs()->set_name(std::string("y"));
  return request;
}

// The chain as one graph.
v1::EvaluateRequest DoubleOften() {
  v1::EvaluateRequest request = Double();
  v1::GraphDefinition* const graph =
      request.mutable_graph()->mutable_definition();
  const v1::Node first = graph->nodes(0);
  graph->clear_nodes();
  const auto value = [](int i) {
    return i == 0        ? std::string("x")
           : i == kChain ? std::string("y")
                         : absl::StrCat("v", i);
  };
  for (int i = 0; i < kChain; ++i) {
    v1::Node* const node = graph->add_nodes();
    *node = first;
    for (std::string& input : *node->mutable_inputs()) input = value(i);
    node->set_outputs(0, value(i + 1));
  }
  return request;
}

v1::TensorValue Elements(const std::string& raw) {
  v1::TensorValue value;
  value.mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT);
  value.mutable_spec()->add_shape(
      static_cast<int64_t>(raw.size() / sizeof(float)));
  value.set_raw(raw);
  return value;
}

v1::EvaluateRequest Sent(const std::string& raw) {
  v1::EvaluateRequest request = Double();
  *request.mutable_inputs(0)->mutable_value() = Elements(raw);
  request.set_mode(v1::EVAL_MODE_SYNC_FULL);
  return request;
}

v1::EvaluateRequest Kept(uint64_t from, uint64_t to) {
  v1::EvaluateRequest request = Double();
  request.mutable_inputs(0)->mutable_value()->set_tensor(from);
  request.mutable_outputs(0)->set_tensor(to);
  request.set_context(kContext);
  return request;
}

// How often a second `once` is done, times `each`.
double Rate(int each, const std::function<void()>& once) {
  const auto begin = Clock::now();
  int times = 0;
  while (Clock::now() - begin < kRound) {
    once();
    ++times;
  }
  return times * each /
         std::chrono::duration<double>(Clock::now() - begin).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Free(uint64_t tensor, v1::RunRequest* request) {
  request->add_commands()->mutable_tensor_free()->set_tensor(tensor);
}

// The device's time of a chain from tensor `from`, in microseconds: deferred,
// and as one graph.
struct DeviceTimes {
  double deferred = 0, one_graph = 0;
};
DeviceTimes TimeDeferred(Caller& caller, uint64_t from, uint64_t* number) {
  std::vector<double> deferred, one_graph;
  const auto note = [](const v1::SyncReport& report,
                       std::vector<double>* times) {
    times->push_back(static_cast<double>(report.execution_ns()) / 1000);
  };
  for (int round = 0; round < kDeferredRounds; ++round) {
    v1::RunRequest chain;
    for (int i = 0; i < kChain; ++i) {
      v1::EvaluateRequest* const link =
          chain.add_commands()->mutable_evaluate();
      *link = Kept(i == 0 ? from : *number, *number + 1);
      link->set_context(kDeferring);
      link->set_work(*number + 1);
      if (i > 0) Free(*number, &chain);
      ++*number;
    }
    chain.add_commands()->mutable_wait()->add_works(*number);
    chain.add_commands()->mutable_query()->set_work(*number);
    Free(*number, &chain);
    const v1::RunResponse told = caller.Run(chain);
    note(told.results(told.results_size() - 2).query().report(), &deferred);
    v1::EvaluateRequest graph = DoubleOften();
    graph.mutable_inputs(0)->mutable_value()->set_tensor(from);
    graph.mutable_outputs(0)->set_tensor(++*number);
    graph.set_context(kContext);
    graph.set_mode(v1::EVAL_MODE_SYNC_FULL);
    note(caller.Evaluate(graph, /*in_space=*/true).report(), &one_graph);
    v1::RunRequest free;
    Free(*number, &free);
    caller.Run(free);
  }
  return {Median(deferred), Median(one_graph)};
}

int Main(int argc, char** argv) {
  const std::string device = argc > 1 ? argv[1] : "cpu";
  auto server = ServerProcess::Start({absl::StrCat("--device=", device)});
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
    return 1;
  }
  Caller caller((*server)->address());
  const std::string ones(kElements * sizeof(float), '\0');
  v1::RunRequest put;
  put.add_commands()->mutable_tensor_put()->set_tensor(1);
  *put.mutable_commands(0)->mutable_tensor_put()->mutable_value() =
      Elements(ones);
  put.add_commands()->mutable_context_create()->set_context(kContext);
  constexpr uint64_t kLarge = uint64_t{1} << 40;
  v1::TensorPut* const large = put.add_commands()->mutable_tensor_put();
  large->set_tensor(kLarge);
  *large->mutable_value() =
      Elements(std::string(kDeferredElements * sizeof(float), '\0'));
  v1::ContextCreate* const deferring =
      put.add_commands()->mutable_context_create();
  deferring->set_context(kDeferring);
  deferring->set_mode(v1::EVAL_MODE_DEFERRED);
  put.add_commands()->mutable_context_create()->set_context(kOfSession);
  caller.Run(put);

  const auto sent = [&] { caller.Evaluate(Sent(ones), /*in_space=*/false); };
  uint64_t number = 1;
  const auto kept = [&] {
    ++number;
    v1::RunRequest free;
    free.add_commands()->mutable_tensor_free()->set_tensor(number);
    v1::EvaluateRequest request = Kept(1, number);
    request.set_mode(v1::EVAL_MODE_SYNC_FULL);
    caller.Evaluate(request, /*in_space=*/true);
    caller.Run(free);
  };
  const auto run = [&] {
    v1::RunRequest request;
    const uint64_t first = number + 1;
    for (int i = 0; i < kCommands; ++i) {
      *request.add_commands()->mutable_evaluate() = Kept(1, ++number);
    }
    request.add_commands()->mutable_wait()->add_tensors(number);
    for (uint64_t tensor = first; tensor <= number; ++tensor) {
      request.add_commands()->mutable_tensor_free()->set_tensor(tensor);
    }
    caller.Run(request);
  };
  const auto carried = [&] {
    std::string raw = ones;
    for (int i = 0; i < kChain; ++i) {
      raw = caller.Evaluate(Sent(raw), /*in_space=*/false)
                .outputs(0)
                .value()
                .raw();
    }
  };
  const auto chained = [&] {
    v1::RunRequest request;
    const uint64_t first = number + 1;
    for (int i = 0; i < kChain; ++i) {
      *request.add_commands()->mutable_evaluate() =
          Kept(i == 0 ? 1 : number, number + 1);
      ++number;
    }
    request.add_commands()->mutable_tensor_get()->set_tensor(number);
    for (uint64_t tensor = first; tensor <= number; ++tensor) {
      request.add_commands()->mutable_tensor_free()->set_tensor(tensor);
    }
    caller.Run(request);
  };

  v1::EvaluateRequest in_context = Sent(ones);
  in_context.set_context(kOfSession);
  std::optional<SessionCaller> session(std::in_place, caller.evaluator(),
                                       caller.token());
  const auto in_session = [&] { session->Run(in_context); };

  std::vector<double> of_sent, of_kept, of_run, of_carried, of_chained;
  std::vector<double> of_session;
  for (int round = 0; round < kRounds; ++round) {
    of_sent.push_back(Rate(1, sent));
    of_session.push_back(Rate(kBatch, in_session));
    of_kept.push_back(Rate(1, kept));
    of_run.push_back(Rate(kCommands, run));
    of_carried.push_back(Rate(1, carried));
    of_chained.push_back(Rate(1, chained));
  }
  session.reset();
  const DeviceTimes times = TimeDeferred(caller, kLarge, &number);
  (*server)->Terminate();
  const double session_gain = Median(of_session) / Median(of_sent);
  const bool session_holds =
      device == "cpu" || session_gain >= kLeastSessionGain;
  std::printf(
      "%s, 4 KB sent and read back, one caller: %.0f/s by calls, %.0f/s by a "
      "session\n  %s %.2f x, on a GPU at least %.1f x\n",
      device.c_str(), Median(of_sent), Median(of_session),
      session_holds ? "holds:" : "DOES NOT HOLD:", session_gain,
      kLeastSessionGain);
  std::printf(
      "%s, 4 KB, one caller: %.0f evaluations/s sent and read back, %.0f kept "
      "and freed by a call each, %.0f kept and freed in Runs of %d (%.2f x)\n",
      device.c_str(), Median(of_sent), Median(of_kept), Median(of_run),
      kCommands, Median(of_run) / Median(of_sent));
  const double gain = Median(of_chained) / Median(of_carried);
  std::printf(
      "  a chain of %d: %.0f/s by calls that carry it, %.0f/s in one Run\n"
      "  %s %.2f x, at least %.1f x\n",
      kChain, Median(of_carried), Median(of_chained),
      gain >= kLeastGain ? "holds:" : "DOES NOT HOLD:", gain, kLeastGain);
  const double ratio = times.deferred / times.one_graph;
  std::printf(
      "  a chain of %d over 4 MB on the device: %.0f us deferred, %.0f us as "
      "one graph\n"
      "  %s %.2f x, at most %.1f x\n",
      kChain, times.deferred, times.one_graph,
      ratio <= kMostDeferred ? "holds:" : "DOES NOT HOLD:", ratio,
      kMostDeferred);
  return gain >= kLeastGain && session_holds && ratio <= kMostDeferred ? 0 : 1;
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) { return weir::bench::Main(argc, argv); }
