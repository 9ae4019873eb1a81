// What takes long is not done on I/O threads: the handlers' side of it, with a
// call whose I/O thread is the test's.
#include "server/services/long_step.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/error_info.h"
#include "kernels/device/devices.h"
#include "kernels/ops/registry.h"
#include "proto/weir/v1/evaluator.pb.h"
#include "server/services/catalog.h"
#include "server/services/evaluator.h"
#include "server/services/kserve_infer.h"
#include "tests/base/event.h"

namespace weir {
namespace {

// Answered by the thread that it was made on, or the test fails.
class FakeCall final : public ServerCall {
 public:
  explicit FakeCall(std::string_view message)
      : piece_(reinterpret_cast<const std::byte*>(message.data()),
               message.size()) {
    request_ = ByteView({&piece_, 1}, message.size());
  }

  void Resume(ResumeFn fn, void* arg) override {
    fn_ = fn;
    arg_ = arg;
    resumed_.Set();
  }
  // What its I/O thread would do.
  void RunResumed() {
    resumed_.Wait(++runs_);
    fn_(*this, arg_);
  }
  void Admit(Admission* admission) {
    ticket_ = *admission->Admit(request_.size(), kNoDeadline, NowNanos());
  }
  bool was_resumed() const { return resumed_.count() > 0; }
  void Cancel() { SetCancelled(); }
  std::string Peer() const override { return ""; }
  std::optional<std::string_view> Header(std::string_view) const override {
    return std::nullopt;
  }
  void Reply(ReplyBuffer) override { answer_ = absl::OkStatus(); }
  void Fail(const absl::Status& error) override { answer_ = error; }
  void Write(ReplyBuffer, ResumeFn, void*) override {}

  // Unset before it has one.
  const std::optional<absl::Status>& answer() const { return answer_; }

 private:
  const BytePiece piece_;
  Event resumed_;
  size_t runs_ = 0;
  ResumeFn fn_ = nullptr;
  void* arg_ = nullptr;
  std::optional<absl::Status> answer_;
};

class LongStepTest : public ::testing::Test {
 protected:
  LongStepTest()
      : engine_(*Engine::Create(MakeCpuDevice({}), registry_.get())),
        models_(
            *ModelRepository::Open({}, &engine_->device(), registry_.get())),
        memory_(&engine_->device()),
        context_{options_, *engine_,   nullptr,    *models_, admission_,
                 metrics_, of_models_, readiness_, memory_,  "test"},
        evaluator_(&context_),
        catalog_(&context_),
        kserve_(&context_) {
    evaluator_.Register(&table_);
    catalog_.Register(&table_);
    kserve_.Register(&table_);
  }

  // The thread ends with the engine.
  ~LongStepTest() override {
    while (gate_.count() < closed_) Open();
  }

  const Method& Find(std::string_view name) const {
    for (const Method& method : table_.methods()) {
      if (method.name == name) return method;
    }
    ADD_FAILURE() << name;
    return table_.methods()[0];
  }

  // Nothing that was posted to another thread runs before Open().
  void Close() {
    engine_->executor().Post([this, times = ++closed_] { gate_.Wait(times); });
  }
  void Open() { gate_.Set(); }

  // Each two bytes, and unknown to every method.
  static std::string UnknownFields(size_t bytes) {
    std::string fields;
    while (fields.size() < bytes) fields += std::string("\x78\x00", 2);
    return fields;
  }

  Event gate_;
  size_t closed_ = 0;
  const ServerOptions options_;
  const std::unique_ptr<OpRegistry> registry_ = MakeOpRegistry({});
  const std::unique_ptr<Engine> engine_;
  const std::unique_ptr<ModelRepository> models_;
  Admission admission_{100, size_t{1} << 30};
  Metrics metrics_;
  ModelMetrics of_models_{&metrics_};
  Readiness readiness_;
  MemorySampler memory_;
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

// What lists the outputs is refused where there is no room for it any more.
TEST_F(LongStepTest, ManyOutputsAreListedOnlyWhereThereIsRoom) {
  v1::EvaluateRequest request;
  v1::GraphDefinition* const graph =
      request.mutable_graph()->mutable_definition();
  v1::NamedTensor* const constant = graph->add_constants();
  constant->set_name("c");
  constant->mutable_value()->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT);
  constant->mutable_value()->mutable_spec()->add_shape(64);
  constant->mutable_value()->set_raw(std::string(64 * sizeof(float), '\0'));
  for (int i = 0; i < 1000; ++i) {
    v1::Node* const node = graph->add_nodes();
    node->set_op("Identity");
    node->add_inputs("c");
    node->add_outputs("y" + std::to_string(i));
    graph->add_outputs("y" + std::to_string(i));
  }
  const std::string message = request.SerializeAsString();
  for (const bool room : {true, false}) {
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

TEST_F(LongStepTest, TheMessageOfACallerThatHasGoneIsNotRead) {
  // Read, it would be INVALID_ARGUMENT.
  const std::string bytes(kLongStepBytes + 1, '\xff');
  for (const char* name : {"Evaluate", "ModelInfer"}) {
    SCOPED_TRACE(name);
    Close();
    FakeCall call(bytes);
    Find(name).handler(call);
    call.Cancel();
    Open();
    call.RunResumed();
    ASSERT_TRUE(call.answer().has_value());
    EXPECT_EQ(call.answer()->code(), absl::StatusCode::kCancelled);
  }
}

}  // namespace
}  // namespace weir
