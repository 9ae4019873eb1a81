// What takes long is not done on I/O threads: the handlers' side of it, with a
// call whose I/O thread is the test's.
#include "server/services/long_step.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "kernels/ops/registry.h"
#include "proto/inference/grpc_service.pb.h"
#include "proto/weir/v1/catalog.pb.h"
#include "proto/weir/v1/evaluator.pb.h"
#include "server/evaluation/result_bytes.h"
#include "server/rpc/peer.h"
#include "server/services/catalog.h"
#include "server/services/evaluator.h"
#include "server/services/kserve_infer.h"
#include "tests/base/event.h"
#include "tests/server/model_folder.h"

namespace weir {
namespace {

// Answered by the thread that it was made on, or the test fails.
class FakeCall final : public ServerCall {
 public:
  explicit FakeCall(std::string_view message,
                    std::string_view peer = "ipv4:192.0.2.1:1000")
      : connection_(peer),
        piece_(reinterpret_cast<const std::byte*>(message.data()),
               message.size()) {
    request_ = ByteView({&piece_, 1}, message.size());
    peer_ = PeerKey(peer);
  }

  void Resume(ResumeFn fn, void* arg) override {
    fn_ = fn;
    arg_ = arg;
    resumed_.Set();
  }
  // What its I/O thread would do.
  void RunResumed() {
    AwaitResumed();
    ++runs_;
    fn_(*this, arg_);
  }
  void AwaitResumed() { resumed_.Wait(runs_ + 1); }
  void Admit(Admission* admission) {
    ticket_ = *admission->Admit(request_.size(), kNoDeadline, NowNanos());
  }
  size_t resumed() const { return resumed_.count(); }
  bool was_resumed() const { return resumed() > 0; }
  void SetInflated() { inflated_ = true; }
  void Cancel() { SetCancelled(); }
  // It had passed before the call was handled.
  void PassDeadline() { deadline_ = made_; }
  std::string Connection() const override { return std::string(connection_); }
  std::optional<std::string_view> Header(std::string_view) const override {
    return std::nullopt;
  }
  void Reply(ReplyBuffer reply) override {
    for (size_t i = 0; i < reply.slice_count(); ++i) {
      const grpc_slice& slice = reply.slices()[i];
      replied_.append(
          reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)),
          GRPC_SLICE_LENGTH(slice));
    }
    Answer(absl::OkStatus());
  }
  void Fail(const absl::Status& error) override { Answer(error); }
  void Write(ReplyBuffer, ResumeFn, void*) override {}

  // Unset before it has one.
  const std::optional<absl::Status>& answer() const { return answer_; }
  const std::string& replied() const { return replied_; }

 private:
  void Answer(const absl::Status& status) {
    EXPECT_FALSE(answer_.has_value()) << "answered twice";
    answer_ = status;
  }

  const Nanos made_ = NowNanos();
  const std::string_view connection_;
  const BytePiece piece_;
  Event resumed_;
  size_t runs_ = 0;
  ResumeFn fn_ = nullptr;
  void* arg_ = nullptr;
  std::optional<absl::Status> answer_;
  std::string replied_;
};

class LongStepTest : public ::testing::Test {
 protected:
  LongStepTest()
      : engine_(&engines_.Add(*Engine::Create(MakeCpuDevice({}),
                                              registry_.get(), SmallEngine()))),
        models_(OpenModels()),
        context_{options_,   engines_,   *models_,    admission_,   metrics_,
                 of_models_, readiness_, long_steps_, evaluations_, "test"},
        evaluator_(&context_),
        catalog_(&context_),
        kserve_(&context_) {
    evaluator_.Register(&table_);
    catalog_.Register(&table_);
    kserve_.Register(&table_);
  }

  // The threads end with it.
  ~LongStepTest() override {
    while (gate_.count() < closed_) Open();
  }

  static EngineOptions SmallEngine() {
    EngineOptions options;
    options.pinned_bytes = size_t{64} << 20;
    options.programs.max_queued = kMaxCompilations;
    options.programs.max_waiters = kMaxWaiters;
    // However busy the machine is.
    options.programs.quick_plan = absl::InfiniteDuration();
    return options;
  }
  // "copy" gives the floats back that it is given, "copies" as its many
  // outputs.
  std::unique_ptr<ModelRepository> OpenModels() {
    folder_.Write("copy", testing::IdentityModel(onnx::TensorProto::FLOAT));
    onnx::ModelProto copies = testing::EmptyModel();
    testing::AddValue(copies.mutable_graph()->add_input(), "x",
                      onnx::TensorProto::FLOAT, {"N"});
    for (int i = 0; i < kManyOutputs; ++i) {
      const std::string name = absl::StrCat("y", i);
      testing::AddValue(copies.mutable_graph()->add_output(), name,
                        onnx::TensorProto::FLOAT, {"N"});
      testing::AddNode(&copies, "Identity", {"x"}, {name});
    }
    folder_.Write("copies", copies);
    RepositoryOptions options;
    options.root = folder_.path();
    auto models =
        *ModelRepository::Open(options, &engine_->device(), registry_.get());
    models->LoadAll();
    return models;
  }

  const Method& Find(std::string_view name) const {
    for (const Method& method : table_.methods()) {
      if (method.name == name) return method;
    }
    ADD_FAILURE() << name;
    return table_.methods()[0];
  }

  // No long step begins before Open(): each thread is in one of another peer.
  void Close() {
    ++closed_;
    for (size_t i = 0; i < kThreads; ++i) {
      const std::string peer = absl::StrCat("closed ", closed_, "/", i);
      long_steps_.Post(peer, [this, times = closed_] {
        held_.Set();
        gate_.Wait(times);
      });
    }
    held_.Wait(closed_ * kThreads);
  }
  void Open() { gate_.Set(); }

  // Each two bytes, and unknown to every method.
  static std::string UnknownFields(size_t bytes) {
    std::string fields;
    while (fields.size() < bytes) fields += std::string("\x78\x00", 2);
    return fields;
  }

  // A message that asks for a graph which nobody else asks for.
  static std::string Negation(const std::string& method,
                              const std::string& output) {
    v1::GraphDefinition graph;
    graph.add_inputs()->set_name("x");
    v1::Node* const node = graph.add_nodes();
    node->set_op("Neg");
    node->add_inputs("x");
    node->add_outputs(absl::StrCat(method, " ", output));
    graph.add_outputs(node->outputs(0));
    v1::TensorSpec spec;
    spec.set_dtype(v1::DATA_TYPE_FLOAT);
    spec.add_shape(1);
    if (method == "Explain") {
      v1::ExplainRequest request;
      *request.mutable_graph()->mutable_definition() = graph;
      request.add_inputs()->set_name("x");
      *request.mutable_inputs(0)->mutable_spec() = spec;
      return request.SerializeAsString();
    }
    v1::EvaluateRequest request;
    *request.mutable_graph()->mutable_definition() = graph;
    request.add_inputs()->set_name("x");
    *request.mutable_inputs(0)->mutable_value()->mutable_spec() = spec;
    request.mutable_inputs(0)->mutable_value()->set_raw("1234");
    return request.SerializeAsString();
  }

  // Runs what the call is resumed for until it is answered. Returns how many
  // long steps it took.
  int LongStepsOf(std::string_view method, FakeCall& call) {
    int steps = 0;
    Close();
    Find(method).handler(call);
    while (!call.answer().has_value()) {
      if (long_steps_.waiting() > 0) {
        ++steps;
        Open();
        call.AwaitResumed();
        Close();
      }
      call.RunResumed();
    }
    Open();
    return steps;
  }

  // A done evaluation of "copy".
  std::unique_ptr<Evaluation> Copied(const std::string& floats) {
    struct Client final : EvaluationClient {
      void Wake(Evaluation& evaluation) override {
        executor.Post([&evaluation] { evaluation.GoOn(); });
      }
      void Done() override { done.Set(); }
      Event done;
      ThreadExecutor executor{"test", ThreadRole::kOther};
    };
    auto evaluation = std::make_unique<Evaluation>(*engine_);
    WorkRequest& request = evaluation->request();
    request.program = (*models_->Find("copy", ""))->program;
    request.mode = EvalMode::kSyncFull;
    request.inputs.resize(1);
    request.inputs[0].dtype = DType::kFloat;
    request.inputs[0].dims = {
        static_cast<int64_t>(floats.size() / sizeof(float))};
    request.inputs[0].pieces = {floats};
    Client client;
    client.executor.Post([&] { evaluation->Start(client); });
    client.done.Wait();
    EXPECT_TRUE(evaluation->work().status().ok());
    return evaluation;
  }

  // What its reply may have.
  struct RoomOf final : ReplyRoom {
    explicit RoomOf(FakeCall* its_call) : call(its_call) {}
    absl::Status CheckReply(size_t bytes) const override {
      return call->CheckReplySize(bytes);
    }
    absl::Status ChargeReply(size_t bytes) override {
      return call->ChargeReply(bytes);
    }
    FakeCall* const call;
  };

  static constexpr size_t kThreads = 2;
  static constexpr size_t kMaxCompilations = 4;  // that wait
  static constexpr size_t kMaxWaiters = 8;       // for plans
  static constexpr int kManyOutputs = 5000;
  static_assert(kManyOutputs * kLongStepTensorBytes > kLongStepBytes);

  Event gate_, held_;
  size_t closed_ = 0;
  const testing::ModelFolder folder_;
  const ServerOptions options_;
  const std::unique_ptr<OpRegistry> registry_ = MakeOpRegistry({});
  Engines engines_;
  Engine* const engine_;
  const std::unique_ptr<ModelRepository> models_;
  Admission admission_{100, size_t{1} << 30};
  Metrics metrics_;
  ModelMetrics of_models_{&metrics_};
  Readiness readiness_;
  FairThreads long_steps_{kThreads};
  EvaluationPool evaluations_;
  ServiceContext context_;
  EvaluatorService evaluator_;
  CatalogService catalog_;
  KserveInferService kserve_;
  MethodTable table_;
};

// A small message is answered between the arrival of a large one and its end.
TEST_F(LongStepTest, LargeMessagesAreReadOnAnotherThread) {
  Close();
  const std::string bytes = UnknownFields(kLongStepBytes + 2);
  const std::string few = UnknownFields(kLongStepBytes);
  std::vector<std::unique_ptr<FakeCall>> large;
  for (const char* name : {"Evaluate", "Explain", "ModelInfer"}) {
    SCOPED_TRACE(name);
    large.push_back(std::make_unique<FakeCall>(bytes));
    Find(name).handler(*large.back());
    FakeCall small(few);
    Find(name).handler(small);
    ASSERT_TRUE(small.answer().has_value());
    EXPECT_FALSE(small.answer()->ok());
    ASSERT_FALSE(large.back()->answer().has_value());
    EXPECT_FALSE(large.back()->was_resumed());
  }
  Open();
  for (const auto& call : large) {
    call->RunResumed();
    ASSERT_TRUE(call->answer().has_value());
    EXPECT_FALSE(call->answer()->ok());
  }
}

// With its place and its bytes, however much of its peer's is before it.
TEST_F(LongStepTest, ACallerWhoLeavesIsLetGoOf) {
  Close();
  const std::string bytes = UnknownFields(kLongStepBytes + 2);
  for (const char* name : {"Evaluate", "Explain", "ModelInfer"}) {
    SCOPED_TRACE(name);
    FakeCall call(bytes);
    Find(name).handler(call);
    ASSERT_FALSE(call.answer().has_value());
    call.Cancel();
    ASSERT_TRUE(call.answer().has_value());
    EXPECT_EQ(call.answer()->code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(long_steps_.waiting(), 0u);
    EXPECT_FALSE(call.was_resumed());
  }
  // One that had gone before.
  FakeCall gone(bytes);
  gone.Cancel();
  Find("Evaluate").handler(gone);
  ASSERT_TRUE(gone.answer().has_value());
  EXPECT_EQ(gone.answer()->code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(long_steps_.waiting(), 0u);
}

TEST_F(LongStepTest, ACallWhoseDeadlinePassesFails) {
  Close();
  const std::string bytes = UnknownFields(kLongStepBytes + 2);
  for (const char* name : {"Evaluate", "Explain", "ModelInfer"}) {
    SCOPED_TRACE(name);
    FakeCall call(bytes);
    call.PassDeadline();
    Find(name).handler(call);
    call.RunResumed();
    ASSERT_TRUE(call.answer().has_value());
    EXPECT_EQ(call.answer()->code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(Reason(*call.answer()), "");
    EXPECT_EQ(long_steps_.waiting(), 0u);
  }
}

// A step of one call, between its peer's others.
class OneStep : public ::testing::Test {
 protected:
  void Start(FairThreads& threads) {
    RunStep<&OneStep::Work, &OneStep::Next>(call_, threads, kLongStepBytes + 1,
                                            this);
  }
  absl::Status Work() {
    worked_.Set();
    go_on_.Wait();
    return absl::OkStatus();
  }
  void Next(absl::Status status) {
    EXPECT_FALSE(said_.has_value());
    said_ = std::move(status);
  }

  FakeCall call_{""};
  Event worked_, go_on_;
  std::optional<absl::Status> said_;
};

TEST_F(OneStep, WaitsNoLongerThanAnyMay) {
  Event busy, gate;
  FairThreads threads(2, /*longest_wait=*/0);
  for (const char* peer : {"first", "second"}) {
    threads.Post(peer, [&] {
      busy.Set();
      gate.Wait();
    });
  }
  busy.Wait(2);
  Start(threads);
  call_.RunResumed();
  ASSERT_TRUE(said_.has_value());
  EXPECT_EQ(said_->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Reason(*said_), "STEP_WAIT_TOO_LONG");
  EXPECT_TRUE(RetryAfter(*said_).has_value());
  gate.Set();
}

// It uses what the caller's call holds.
TEST_F(OneStep, ThatHasBegunIsWaitedForWhenItsCallerLeaves) {
  FairThreads threads(2);
  Start(threads);
  worked_.Wait();
  call_.Cancel();
  EXPECT_FALSE(said_.has_value());
  go_on_.Set();
  call_.RunResumed();
  EXPECT_TRUE(said_->ok());
}

TEST_F(OneStep, IsForgottenWithItsEnd) {
  FairThreads threads(2);
  go_on_.Set();
  Start(threads);
  call_.RunResumed();
  EXPECT_TRUE(said_->ok());
  call_.Cancel();
}

// In whichever order that comes about.
TEST(LongStepsTest, EndOnceHoweverTheyEnd) {
  struct Step {
    absl::Status Work() { return absl::OkStatus(); }
    void Next(absl::Status) { ++said; }
    int said = 0;
  };
  FairThreads threads(2);
  for (int i = 0; i < 300; ++i) {
    FakeCall call("");
    if (i % 2 == 0) call.PassDeadline();
    Step step;
    RunStep<&Step::Work, &Step::Next>(call, threads, kLongStepBytes + 1, &step);
    if (i % 3 > 0) call.Cancel();
    if (step.said == 0) call.RunResumed();
    ASSERT_EQ(step.said, 1);
  }
  EXPECT_EQ(threads.waiting(), 0u);
}

// What lists the outputs is refused where there is no room for it any more.
TEST_F(LongStepTest, ManyOutputsAreListedOnlyWhereThereIsRoom) {
  for (const bool room : {true, false}) {
    v1::EvaluateRequest request;
    v1::GraphDefinition* const graph =
        request.mutable_graph()->mutable_definition();
    v1::NamedTensor* const constant = graph->add_constants();
    constant->set_name("c");
    constant->mutable_value()->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT);
    constant->mutable_value()->mutable_spec()->add_shape(64);
    constant->mutable_value()->set_raw(std::string(64 * sizeof(float), '\0'));
    for (int i = 0; i < 1000; ++i) {
      // Neither is compiled yet: nothing more happens inside the handler.
      const std::string name = absl::StrCat(room ? "y" : "z", i);
      v1::Node* const node = graph->add_nodes();
      node->set_op("Identity");
      node->add_inputs("c");
      node->add_outputs(name);
      graph->add_outputs(name);
    }
    const std::string message = request.SerializeAsString();
    Admission admission(100, size_t{1} << 20);
    FakeCall call(message);
    call.Admit(&admission);
    Find("Evaluate").handler(call);
    Admission::Ticket other;
    if (!room) {
      const auto left = admission.max_bytes() - admission.bytes();
      other =
          *admission.Admit(static_cast<size_t>(left), kNoDeadline, NowNanos());
    }
    while (!call.answer().has_value()) call.RunResumed();
    EXPECT_EQ(Reason(*call.answer()), room ? "" : "QUEUE_BYTES_FULL")
        << *call.answer();
  }
}

// A thousandth of it may be all that its sender had to send.
TEST_F(LongStepTest, AMessageThatWasCompressedIsReadInItsPeersTurn) {
  const std::string large = UnknownFields(kLongStepFieldBytes + 2);
  const std::string small = UnknownFields(kLongStepFieldBytes);
  for (const char* name : {"Evaluate", "Explain", "ModelInfer"}) {
    SCOPED_TRACE(name);
    FakeCall inflated(large), plain(large), little(small);
    inflated.SetInflated();
    little.SetInflated();
    EXPECT_EQ(LongStepsOf(name, inflated), 1);
    EXPECT_EQ(LongStepsOf(name, plain), 0);
    EXPECT_EQ(LongStepsOf(name, little), 0);
  }
}

// However little is in each of them. To choose them, and to write them.
TEST_F(LongStepTest, RepliesOfManyOutputsAreMadeOnAnotherThread) {
  v1::EvaluateRequest evaluate;
  v1::GraphDefinition* const graph =
      evaluate.mutable_graph()->mutable_definition();
  v1::NamedTensor* const constant = graph->add_constants();
  constant->set_name("c");
  constant->mutable_value()->mutable_spec()->set_dtype(v1::DATA_TYPE_UINT8);
  constant->mutable_value()->set_raw("x");
  for (int i = 0; i < kManyOutputs; ++i) {
    const std::string name = absl::StrCat("y", i);
    v1::Node* const node = graph->add_nodes();
    node->set_op("Identity");
    node->add_inputs("c");
    node->add_outputs(name);
    graph->add_outputs(name);
  }
  inference::ModelInferRequest infer;
  infer.set_model_name("copies");
  auto* const input = infer.add_inputs();
  input->set_name("x");
  input->set_datatype("FP32");
  input->add_shape(1);
  infer.add_raw_input_contents("1234");
  const std::string definition = evaluate.SerializeAsString();
  const std::string message = infer.SerializeAsString();
  ASSERT_LT(definition.size(), kLongStepBytes);
  FakeCall many_of_graph(definition), many_of_model(message);
  // Before them to read the definition, which is more than 64 KiB.
  EXPECT_EQ(LongStepsOf("Evaluate", many_of_graph), 3);
  EXPECT_TRUE(many_of_graph.answer()->ok()) << *many_of_graph.answer();
  EXPECT_EQ(LongStepsOf("ModelInfer", many_of_model), 2);
  EXPECT_TRUE(many_of_model.answer()->ok()) << *many_of_model.answer();
  // Few of them take an I/O thread no time: they are chosen alone.
  infer.add_outputs()->set_name("y7");
  const std::string one = infer.SerializeAsString();
  FakeCall one_of_model(one);
  EXPECT_EQ(LongStepsOf("ModelInfer", one_of_model), 1);
  EXPECT_TRUE(one_of_model.answer()->ok()) << *one_of_model.answer();
}

// However many another one has sent.
TEST_F(LongStepTest, APeersLargeMessageWaitsForNobodyElses) {
  constexpr std::string_view kMany = "ipv4:192.0.2.1:1000";
  Event gate;
  long_steps_.Post(PeerKey(kMany), [&] { gate.Wait(); });
  const std::string bytes = UnknownFields(kLongStepBytes + 2);
  std::vector<std::unique_ptr<FakeCall>> many;
  for (int i = 0; i < 10; ++i) {
    many.push_back(std::make_unique<FakeCall>(bytes, kMany));
    Find("Evaluate").handler(*many.back());
  }
  FakeCall one(bytes, "ipv4:192.0.2.2:1000");
  Find("Evaluate").handler(one);
  one.RunResumed();
  EXPECT_TRUE(one.answer().has_value());
  for (const auto& call : many) EXPECT_FALSE(call->was_resumed());
  gate.Set();
  for (const auto& call : many) {
    call->RunResumed();
    EXPECT_TRUE(call->answer().has_value());
  }
}

// However many another one has sent, over whichever of its connections.
TEST_F(LongStepTest, APeersGraphsLeaveRoomForThoseOfAnother) {
  for (const char* method : {"Evaluate", "Explain"}) {
    SCOPED_TRACE(method);
    // Nothing else is compiled meanwhile.
    Event compiling, gate;
    engine_->programs().GetOrCompile(
        absl::StrCat("before ", method),
        [&]() -> absl::StatusOr<Graph> {
          compiling.Set();
          gate.Wait();
          return absl::CancelledError("it was only in the way");
        },
        kNoDeadline, [](const ProgramCache::ProgramOr&) {}, "who came first");
    compiling.Wait();
    std::deque<std::string> messages;
    std::vector<std::unique_ptr<FakeCall>> waiting;
    size_t refused = 0;
    for (size_t i = 0; i < kMaxCompilations; ++i) {
      messages.push_back(Negation(method, absl::StrCat("y", i)));
      auto call = std::make_unique<FakeCall>(
          messages.back(),
          i % 2 == 0 ? "ipv4:192.0.2.1:1000" : "ipv4:192.0.2.1:1001");
      Find(method).handler(*call);
      if (!call->was_resumed()) {
        waiting.push_back(std::move(call));
        continue;
      }
      call->RunResumed();
      EXPECT_EQ(Reason(call->answer().value_or(absl::OkStatus())),
                "COMPILE_QUEUE_FULL");
      ++refused;
    }
    EXPECT_EQ(refused, kMaxCompilations / 2);
    messages.push_back(Negation(method, "other"));
    waiting.push_back(
        std::make_unique<FakeCall>(messages.back(), "ipv4:192.0.2.2:1000"));
    Find(method).handler(*waiting.back());
    EXPECT_FALSE(waiting.back()->was_resumed());
    gate.Set();
    for (const auto& call : waiting) {
      while (!call->answer().has_value()) call->RunResumed();
      EXPECT_TRUE(call->answer()->ok()) << *call->answer();
    }
  }
}

// The same of the plans that they need: each asks for another shape.
TEST_F(LongStepTest, APeersPlansLeaveRoomForThoseOfAnother) {
  const auto message = [](std::string_view method, int64_t rows) {
    const std::string bytes(static_cast<size_t>(rows) * sizeof(float), '\0');
    if (method == "ModelInfer") {
      inference::ModelInferRequest request;
      request.set_model_name("copy");
      auto* const input = request.add_inputs();
      input->set_name("x");
      input->set_datatype("FP32");
      input->add_shape(rows);
      request.add_raw_input_contents(bytes);
      return request.SerializeAsString();
    }
    v1::TensorSpec spec;
    spec.set_dtype(v1::DATA_TYPE_FLOAT);
    spec.add_shape(rows);
    if (method == "Explain") {
      v1::ExplainRequest request;
      request.mutable_graph()->mutable_model()->set_name("copy");
      request.add_inputs()->set_name("x");
      *request.mutable_inputs(0)->mutable_spec() = spec;
      return request.SerializeAsString();
    }
    v1::EvaluateRequest request;
    request.mutable_graph()->mutable_model()->set_name("copy");
    request.add_inputs()->set_name("x");
    *request.mutable_inputs(0)->mutable_value()->mutable_spec() = spec;
    request.mutable_inputs(0)->mutable_value()->set_raw(bytes);
    return request.SerializeAsString();
  };
  // Programs whose plans are quick, so that all threads may make them.
  std::vector<std::shared_ptr<const Program>> quick;
  const HostTensor one = {DType::kFloat, {1}, nullptr};
  for (int i = 0; i < engine_->options().programs.plan_threads; ++i) {
    Graph graph;
    graph.inputs = {{"x", DType::kFloat, SymbolicDims{Dim()}}};
    graph.outputs = {"x"};
    quick.push_back(
        *Program::Compile(std::move(graph), engine_->device(), *registry_));
    ASSERT_TRUE(quick.back()->MakePlan({&one, 1}).ok());
  }
  int64_t rows = 1;
  Event planned;
  size_t held = 0;
  for (const char* method : {"Evaluate", "Explain", "ModelInfer"}) {
    SCOPED_TRACE(method);
    // Nothing else is planned meanwhile.
    Event planning, gate;
    const HostTensor other = {DType::kFloat, {++rows}, nullptr};
    for (const auto& program : quick) {
      engine_->programs().MakePlan(program, {&other, 1}, kNoDeadline,
                                   [&](const ProgramCache::PlanOr&) {
                                     planning.Set();
                                     gate.Wait();
                                     planned.Set();
                                   });
    }
    planning.Wait(quick.size());
    std::deque<std::string> messages;
    std::vector<std::unique_ptr<FakeCall>> waiting;
    size_t refused = 0;
    for (size_t i = 0; i < kMaxWaiters; ++i) {
      messages.push_back(message(method, ++rows));
      auto call = std::make_unique<FakeCall>(
          messages.back(),
          i % 2 == 0 ? "ipv4:192.0.2.1:1000" : "ipv4:192.0.2.1:1001");
      Find(method).handler(*call);
      if (!call->was_resumed() && !call->answer().has_value()) {
        waiting.push_back(std::move(call));
        continue;
      }
      while (!call->answer().has_value()) call->RunResumed();
      EXPECT_EQ(Reason(*call->answer()), "COMPILE_QUEUE_FULL");
      ++refused;
    }
    EXPECT_EQ(refused, kMaxWaiters / 2);
    messages.push_back(message(method, ++rows));
    waiting.push_back(
        std::make_unique<FakeCall>(messages.back(), "ipv4:192.0.2.2:1000"));
    Find(method).handler(*waiting.back());
    EXPECT_FALSE(waiting.back()->was_resumed());
    EXPECT_FALSE(waiting.back()->answer().has_value());
    gate.Set();
    held += quick.size();
    planned.Wait(held);
    for (const auto& call : waiting) {
      while (!call->answer().has_value()) call->RunResumed();
      EXPECT_TRUE(call->answer()->ok()) << *call->answer();
    }
  }
}

// What a message of that size takes is reused on the call's I/O thread.
TEST_F(LongStepTest, ALargeRequestReturnsTheEvaluationThatItTook) {
  inference::ModelInferRequest request;
  request.set_model_name("copy");
  auto* const input = request.add_inputs();
  input->set_name("x");
  input->set_datatype("FP32");
  input->add_shape(kLongStepBytes);
  request.add_raw_input_contents(
      std::string(kLongStepBytes * sizeof(float), 0));
  const std::string message = request.SerializeAsString();
  EvaluationPool::Lease lease = evaluations_.Lend(*engine_);
  const Evaluation* const free = lease.get();
  lease.reset();
  FakeCall call(message);
  Find("ModelInfer").handler(call);
  while (!call.answer().has_value()) call.RunResumed();
  EXPECT_TRUE(call.answer()->ok()) << *call.answer();
  EXPECT_EQ(evaluations_.Lend(*engine_).get(), free);
}

// It would take an I/O thread long to write.
TEST_F(LongStepTest, NoReplyIsWrittenForACallerThatHasGone) {
  constexpr int kStrings = 100'000;
  v1::EvaluateRequest request;
  v1::GraphDefinition* const graph =
      request.mutable_graph()->mutable_definition();
  v1::NamedTensor* const text = graph->add_constants();
  text->set_name("c");
  text->mutable_value()->mutable_spec()->set_dtype(v1::DATA_TYPE_STRING);
  text->mutable_value()->mutable_spec()->add_shape(kStrings);
  text->mutable_value()->set_raw(std::string(kStrings * 4, '\0'));
  v1::Node* const node = graph->add_nodes();
  node->set_op("Identity");
  node->add_inputs("c");
  node->add_outputs("y");
  graph->add_outputs("y");
  const std::string message = request.SerializeAsString();
  ASSERT_LT(message.size(), kLongStepBytes);
  for (const bool gone : {false, true}) {
    FakeCall call(message);
    Find("Evaluate").handler(call);
    call.AwaitResumed();  // its graph was read
    Close();
    call.RunResumed();
    while (long_steps_.waiting() == 0) {
      ASSERT_FALSE(call.answer().has_value()) << *call.answer();
      call.RunResumed();
    }
    if (gone) {
      call.Cancel();
      EXPECT_EQ(long_steps_.waiting(), 0u);
    }
    Open();
    if (!gone) call.RunResumed();
    ASSERT_TRUE(call.answer().has_value());
    EXPECT_EQ(call.answer()->code(),
              gone ? absl::StatusCode::kCancelled : absl::StatusCode::kOk)
        << *call.answer();
  }
}

// Nor is what they are made of freed there.
TEST_F(LongStepTest, LargeProgramsAreExplainedOnAnotherThread) {
  v1::ExplainRequest request;
  v1::GraphDefinition* const graph =
      request.mutable_graph()->mutable_definition();
  v1::GraphInput* const input = graph->add_inputs();
  input->set_name("v0");
  input->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT);
  input->mutable_spec()->add_shape(-1);
  constexpr int kNodes = 10'000;
  for (int i = 0; i < kNodes; ++i) {
    v1::Node* const node = graph->add_nodes();
    node->set_op("Neg");
    node->add_inputs(absl::StrCat("v", i));
    node->add_outputs(absl::StrCat("v", i + 1));
  }
  graph->add_outputs(absl::StrCat("v", kNodes));
  const std::string message = request.SerializeAsString();
  ASSERT_LT(message.size(), kLongStepBytes);
  {
    FakeCall first(message);
    Find("Explain").handler(first);
    while (!first.answer().has_value()) first.RunResumed();
    ASSERT_TRUE(first.answer()->ok()) << *first.answer();
  }
  const std::string few = UnknownFields(16);
  const auto small_is_answered = [&] {
    FakeCall small(few);
    Find("Explain").handler(small);
    return small.answer().has_value();
  };
  for (const bool gone : {false, true}) {
    SCOPED_TRACE(gone);
    Close();
    FakeCall call(message);
    // Of its peer's others how far it had come.
    Event other;
    size_t before_other = 0;
    Find("Explain").handler(call);
    // To read its graph, to outline it, and to fill a page.
    for (int step = 0; step < 3; ++step) {
      EXPECT_EQ(long_steps_.waiting(), 1u) << step;
      EXPECT_TRUE(small_is_answered());
      ASSERT_FALSE(call.answer().has_value()) << *call.answer();
      if (gone && step == 2) {
        long_steps_.Post(call.peer(), [&] {
          before_other = call.resumed();
          other.Set();
        });
        call.Cancel();
        break;
      }
      Open();
      call.AwaitResumed();
      Close();
      call.RunResumed();
    }
    // What fills the page frees the rest too, if it runs.
    EXPECT_EQ(long_steps_.waiting(), gone ? 2u : 0u);
    EXPECT_EQ(call.answer().has_value(), !gone);
    Open();
    if (gone) {
      call.RunResumed();
      other.Wait();
      EXPECT_EQ(before_other, 3u);
    }
    ASSERT_TRUE(call.answer().has_value());
    EXPECT_EQ(call.answer()->code(),
              gone ? absl::StatusCode::kCancelled : absl::StatusCode::kOk)
        << *call.answer();
  }
}

// Others borrow and return pinned memory all the time.
TEST_F(LongStepTest, WhetherOutputsAreCopiedIsAskedOnce) {
  constexpr size_t kBytes = 2 * kLongStepBytes;
  const std::string floats(kBytes, '\0');
  const size_t wanted[] = {0};
  for (const bool lends_much : {false, true}) {
    SCOPED_TRACE(lends_much);
    FakeCall call("");
    std::unique_ptr<Evaluation> evaluation = Copied(floats);
    RoomOf room(&call);
    PinnedPool& pool = engine_->pinned();
    std::vector<PinnedBuffer::Block*> lent;
    const auto lend = [&](bool much) {
      const size_t half = pool.stats().budget_bytes / 2;
      for (PinnedBuffer::Block* block : lent) PinnedBuffer::Return(block);
      lent.clear();
      if (much) {
        lent.push_back(pool.Acquire(half)->Release());
        lent.push_back(pool.Acquire(half / 4)->Release());
      }
      ASSERT_EQ(pool.lends_much(), much);
    };
    lend(lends_much);
    ResultBytes bytes(evaluation->results(), wanted);
    EXPECT_EQ(bytes.step_bytes(),
              (lends_much ? kBytes : 0) + kLongStepTensorBytes);
    lend(!lends_much);
    ASSERT_TRUE(bytes.Prepare(0, room).ok());
    const ForeignBytes taken = bytes.Take(0);
    EXPECT_EQ(taken.data != evaluation->work().OutputBytes(0).data(),
              lends_much);
    lend(false);
    taken.release(taken.arg);
    evaluation.reset();
  }
}

// A page has one entry at least, of whatever size: a step of many outputs.
class LargeReply : public LongStepTest {
 protected:
  // Asks for the page of that step.
  LargeReply() {
    v1::GraphDefinition* const graph =
        request_.mutable_graph()->mutable_definition();
    v1::GraphInput* const input = graph->add_inputs();
    input->set_name("x");
    input->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT);
    input->mutable_spec()->add_shape(kOutputs);
    v1::Node* const node = graph->add_nodes();
    node->set_op("Split");
    node->add_inputs("x");
    v1::Attribute* const parts = node->add_attributes();
    parts->set_name("num_outputs");
    parts->set_i(kOutputs);
    for (int i = 0; i < kOutputs; ++i) {
      node->add_outputs(absl::StrCat(std::string(1000, 'y'), i));
    }
    graph->add_outputs(node->outputs(0));
    request_.set_page_size(2);
    const v1::ExplainResponse before = Explain();
    EXPECT_EQ(before.inputs_size() + before.outputs_size(), 2);
    request_.set_page_token(before.next_page_token());
    Explain();
  }

  v1::ExplainResponse Explain() {
    message_ = request_.SerializeAsString();
    FakeCall call(message_);
    Find("Explain").handler(call);
    for (resumes_ = 0; !call.answer().has_value(); ++resumes_) {
      call.RunResumed();
    }
    EXPECT_TRUE(call.answer()->ok()) << *call.answer();
    v1::ExplainResponse response;
    EXPECT_TRUE(response.ParseFromString(call.replied()));
    return response;
  }

  // Until its page is filled, and the call knows nothing of that.
  void FillPage(FakeCall& call) {
    Find("Explain").handler(call);
    for (int i = 1; i < resumes_; ++i) call.RunResumed();
    call.AwaitResumed();
  }

  static constexpr int kOutputs = 4000;

  v1::ExplainRequest request_;
  std::string message_;
  int resumes_ = 0;  // until it is answered
};

TEST_F(LargeReply, IsMadeOnAnotherThreadAndCountsThere) {
  Admission admission(100, size_t{1} << 30);
  FakeCall call(message_);
  call.Admit(&admission);
  FillPage(call);
  const auto counted = static_cast<size_t>(admission.bytes());
  call.RunResumed();
  ASSERT_TRUE(call.answer().has_value());
  ASSERT_TRUE(call.answer()->ok()) << *call.answer();
  ASSERT_GT(call.replied().size(), 4 * kLongStepBytes - kLongStepBytes / 4);
  // Its request, the outline, what is made of that, and its bytes.
  EXPECT_GE(counted, message_.size() + 3 * call.replied().size());
  EXPECT_EQ(static_cast<size_t>(admission.bytes()), counted);
  v1::ExplainResponse response;
  ASSERT_TRUE(response.ParseFromString(call.replied()));
  ASSERT_EQ(response.steps_size(), 1);
  EXPECT_EQ(response.steps(0).outputs_size(), kOutputs);
}

// There is room for less and less of it.
TEST_F(LargeReply, IsMadeOnlyWhereThereIsRoom) {
  Admission admission(100, size_t{1} << 30);
  size_t counted = 0;
  {
    FakeCall call(message_);
    call.Admit(&admission);
    FillPage(call);
    counted = static_cast<size_t>(admission.bytes());
    call.RunResumed();
  }
  const size_t reply = counted / 4;
  for (const size_t missing : {size_t{1}, reply + reply / 2}) {
    SCOPED_TRACE(missing);
    Admission full(100, counted - missing);
    FakeCall call(message_);
    call.Admit(&full);
    FillPage(call);
    call.RunResumed();
    // One that frees what was outlined.
    while (!call.answer().has_value()) call.RunResumed();
    EXPECT_EQ(Reason(*call.answer()), "QUEUE_BYTES_FULL") << *call.answer();
  }
}

TEST_F(LargeReply, IsLeftToAPageOfItsOwnWhereThereIsNoRoomBesideOthers) {
  request_.clear_page_token();
  message_ = request_.SerializeAsString();
  size_t counted = 0;
  for (const bool is_full : {false, true}) {
    SCOPED_TRACE(is_full);
    Admission admission(100,
                        is_full ? counted - kLongStepBytes : size_t{1} << 30);
    FakeCall call(message_);
    call.Admit(&admission);
    Find("Explain").handler(call);
    while (!call.answer().has_value()) {
      call.AwaitResumed();
      counted = std::max(counted, static_cast<size_t>(admission.bytes()));
      call.RunResumed();
    }
    ASSERT_TRUE(call.answer()->ok()) << *call.answer();
    v1::ExplainResponse response;
    ASSERT_TRUE(response.ParseFromString(call.replied()));
    EXPECT_EQ(response.inputs_size() + response.outputs_size(), 2);
    EXPECT_EQ(response.steps_size(), 0);
    EXPECT_NE(response.next_page_token(), "");
  }
}

// Its outline is small, but not what it takes to make it.
TEST_F(LongStepTest, ManyOperandsAreOutlinedOnAnotherThread) {
  v1::ExplainRequest request;
  v1::GraphDefinition* const graph =
      request.mutable_graph()->mutable_definition();
  v1::GraphInput* const input = graph->add_inputs();
  input->set_name("x");
  input->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT);
  input->mutable_spec()->add_shape(1);
  v1::Node* const node = graph->add_nodes();
  node->set_op("Concat");
  v1::Attribute* const axis = node->add_attributes();
  axis->set_name("axis");
  axis->set_i(0);
  for (int i = 0; i < 20'000; ++i) node->add_inputs("x");
  node->add_outputs("y");
  graph->add_outputs("y");
  const std::string message = request.SerializeAsString();
  ASSERT_LT(message.size(), kLongStepBytes);
  FakeCall first(message), again(message);
  EXPECT_EQ(LongStepsOf("Explain", first), 1);
  EXPECT_TRUE(first.answer()->ok()) << *first.answer();
  EXPECT_EQ(LongStepsOf("Explain", again), 1);
  EXPECT_TRUE(again.answer()->ok()) << *again.answer();
}

// While replies hold half of the pinned memory, and with the flags' proportions
// all that may be in flight, evaluations keep the other half. A little is never
// refused: whoever asks for it holds nothing.
TEST_F(LongStepTest, OutputsThatCannotBeCopiedAreNotLentFromTheOtherHalf) {
  PinnedPool& pool = engine_->pinned();
  const size_t half = pool.stats().budget_bytes / 2;
  Admission admission(100, half);
  auto others = admission.Admit(1, kNoDeadline, NowNanos());
  PinnedBuffer::Block* const lent[] = {pool.Acquire(half)->Release(),
                                       pool.Acquire(half / 4)->Release()};
  others->Answered(half + half / 4);
  ASSERT_TRUE(pool.lends_much());
  const size_t wanted[] = {0};
  for (const size_t size :
       {ServerCall::kLittleReplyBytes, 2 * ServerCall::kLittleReplyBytes}) {
    SCOPED_TRACE(size);
    const std::string floats(size, '\0');
    FakeCall call("");
    std::unique_ptr<Evaluation> evaluation = Copied(floats);
    RoomOf room(&call);
    // It was admitted before they were answered.
    others->Answered(0);
    call.Admit(&admission);
    others->Answered(half + half / 4);
    ResultBytes bytes(evaluation->results(), wanted);
    const absl::Status status = bytes.Prepare(0, room);
    if (size <= ServerCall::kLittleReplyBytes) {
      ASSERT_TRUE(status.ok()) << status;
      const ForeignBytes taken = bytes.Take(0);
      EXPECT_NE(taken.data, evaluation->work().OutputBytes(0).data());
      taken.release(taken.arg);
    } else {
      EXPECT_EQ(Reason(status), "QUEUE_BYTES_FULL") << status;
      EXPECT_TRUE(RetryAfter(status).has_value());
    }
    evaluation.reset();
    EXPECT_EQ(pool.stats().leased_bytes, half + half / 4);
  }
  for (PinnedBuffer::Block* block : lent) PinnedBuffer::Return(block);
}

// The shapes that are given are taken, and the plan looked for, where the
// program is outlined.
TEST_F(LongStepTest, ManyInputsAreExplainedOnAnotherThread) {
  constexpr int kInputs = 10'000;
  v1::ExplainRequest request;
  v1::GraphDefinition* const graph =
      request.mutable_graph()->mutable_definition();
  for (int i = 0; i < kInputs; ++i) {
    v1::GraphInput* const input = graph->add_inputs();
    input->set_name(absl::StrCat("x", i));
    input->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT);
    input->mutable_spec()->add_shape(1);
  }
  graph->add_outputs("x0");
  auto* const given = request.add_inputs();
  given->set_name("x1");
  given->mutable_spec()->set_dtype(v1::DATA_TYPE_DOUBLE);
  const std::string wrong = request.SerializeAsString();
  given->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT);
  given->mutable_spec()->add_shape(1);
  const std::string right = request.SerializeAsString();
  ASSERT_LT(right.size(), kLongStepBytes);
  FakeCall first(right), again(right), refused(wrong);
  // The graph is read there, outlined and listed.
  EXPECT_EQ(LongStepsOf("Explain", first), 3);
  EXPECT_TRUE(first.answer()->ok()) << *first.answer();
  EXPECT_EQ(LongStepsOf("Explain", again), 3);
  EXPECT_TRUE(again.answer()->ok()) << *again.answer();
  // Found out there, and what was taken is freed there.
  EXPECT_EQ(LongStepsOf("Explain", refused), 3);
  EXPECT_EQ(Field(*refused.answer()), "inputs[0]") << *refused.answer();
}

// gRPC does not end a call at its deadline, and its caller may stay.
TEST_F(LongStepTest, AResultThatComesAfterTheDeadlineIsNotSent) {
  inference::ModelInferRequest request;
  request.set_model_name("copy");
  auto* input = request.add_inputs();
  input->set_name("x");
  input->set_datatype("FP32");
  input->add_shape(1);
  request.add_raw_input_contents(std::string(sizeof(float), '\0'));
  const std::string bytes = request.SerializeAsString();
  // The first one runs on another thread, as its time is not known.
  for (const bool late : {true, false}) {
    SCOPED_TRACE(late);
    FakeCall call(bytes);
    Find("ModelInfer").handler(call);
    // Its work was submitted in time.
    if (late) call.PassDeadline();
    while (!call.answer().has_value()) call.RunResumed();
    EXPECT_EQ(call.answer()->code(), late ? absl::StatusCode::kDeadlineExceeded
                                          : absl::StatusCode::kOk)
        << *call.answer();
  }
}

// It says that it ran, and what was waited for.
TEST_F(LongStepTest, AResultThatIsNotSentLeavesItsReport) {
  v1::EvaluateRequest request;
  request.mutable_graph()->mutable_model()->set_name("copy");
  v1::NamedTensor* const input = request.add_inputs();
  input->set_name("x");
  input->mutable_value()->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT);
  input->mutable_value()->mutable_spec()->add_shape(1);
  input->mutable_value()->set_raw("1234");
  const std::string bytes = request.SerializeAsString();
  FakeCall call(bytes);
  Find("Evaluate").handler(call);
  call.PassDeadline();
  while (!call.answer().has_value()) call.RunResumed();
  EXPECT_EQ(call.answer()->code(), absl::StatusCode::kDeadlineExceeded)
      << *call.answer();
  const auto detail =
      call.answer()->GetPayload("type.googleapis.com/weir.v1.SyncReport");
  ASSERT_TRUE(detail.has_value());
  v1::SyncReport report;
  ASSERT_TRUE(report.ParseFromString(std::string(*detail)));
  EXPECT_EQ(report.state(), v1::WORK_STATE_COMPLETED);
}

TEST_F(LongStepTest, TheMessageOfACallerThatDoesNotWaitIsNotRead) {
  // Read, it would be INVALID_ARGUMENT.
  const std::string bytes(kLongStepBytes + 1, '\xff');
  for (const char* name : {"Evaluate", "ModelInfer"}) {
    for (const bool late : {false, true}) {
      SCOPED_TRACE(absl::StrCat(name, " ", late));
      Close();
      FakeCall call(bytes);
      Find(name).handler(call);
      late ? call.PassDeadline() : call.Cancel();
      Open();
      if (late) call.RunResumed();
      ASSERT_TRUE(call.answer().has_value());
      EXPECT_EQ(call.answer()->code(), late
                                           ? absl::StatusCode::kDeadlineExceeded
                                           : absl::StatusCode::kCancelled);
    }
  }
}

}  // namespace
}  // namespace weir
