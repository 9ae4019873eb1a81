// Many callers of both ways to evaluate, over few lanes: completions meet
// wake-ups, admissions and each other, and every call is answered once, with
// its own result.
#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/server/model_folder.h"
#include "tests/server/server_fixture.h"

namespace weir::testing {
namespace {

constexpr int kCallers = 64;
constexpr int kCalls = 24'000;

// One of the callers: a call at a time, of the one kind and of the other.
class Caller {
 public:
  Caller(TestServer* server, grpc::CompletionQueue* queue, int id)
      : server_(*server), queue_(*queue), id_(id) {
    evaluate_ = SpinRequest(std::chrono::microseconds(20));
    infer_.set_model_name("floats");
  }

  void Start(int number) {
    context_ = std::make_unique<grpc::ClientContext>();
    SetPatience(context_.get());
    bytes_ = Bytes<float>(
        {static_cast<float>(id_), static_cast<float>(number), 3, 4});
    evaluating_ = (id_ + number) % 2 == 0;
    if (evaluating_) {
      evaluate_.mutable_inputs(0)->mutable_value()->set_raw(bytes_);
      evaluate_.set_mode(number % 3 == 0 ? v1::EVAL_MODE_EAGER
                                         : v1::EVAL_MODE_SYNC_FULL);
      evaluated_reader_ =
          server_.evaluator().AsyncEvaluate(context_.get(), evaluate_, &queue_);
      evaluated_reader_->Finish(&evaluated_, &status_, this);
    } else {
      infer_.clear_inputs();
      infer_.clear_raw_input_contents();
      AddInput(&infer_, "x", "FP32", {4}, bytes_);
      inferred_reader_ =
          server_.kserve().AsyncModelInfer(context_.get(), infer_, &queue_);
      inferred_reader_->Finish(&inferred_, &status_, this);
    }
  }

  ::testing::AssertionResult Answered() const {
    if (!status_.ok()) {
      return ::testing::AssertionFailure()
             << status_.error_code() << " " << status_.error_message();
    }
    const std::string& got = evaluating_ ? evaluated_.outputs(0).value().raw()
                                         : inferred_.raw_output_contents(0);
    if (got == bytes_) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "another call's answer";
  }

 private:
  TestServer& server_;
  grpc::CompletionQueue& queue_;
  const int id_;
  std::unique_ptr<grpc::ClientContext> context_;
  grpc::Status status_;
  std::string bytes_;
  bool evaluating_ = false;
  v1::EvaluateRequest evaluate_;
  v1::EvaluateResponse evaluated_;
  inference::ModelInferRequest infer_;
  inference::ModelInferResponse inferred_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::EvaluateResponse>>
      evaluated_reader_;
  std::unique_ptr<
      grpc::ClientAsyncResponseReader<inference::ModelInferResponse>>
      inferred_reader_;
};

TEST(MixedLoadTest, EveryCallIsAnsweredOnceWithItsOwnResult) {
  ModelFolder models;
  models.Write("floats", IdentityModel(onnx::TensorProto::FLOAT));
  TestServer server(
      [&](ServerOptions& o) { o.model_repository = models.path(); });
  grpc::CompletionQueue queue;
  std::vector<std::unique_ptr<Caller>> callers;
  for (int i = 0; i < kCallers; ++i) {
    callers.push_back(std::make_unique<Caller>(&server, &queue, i));
    callers.back()->Start(i);
  }
  int failed = 0;
  for (int done = 0; done < kCalls; ++done) {
    void* tag = nullptr;
    bool ok = false;
    ASSERT_TRUE(queue.Next(&tag, &ok));
    Caller* const caller = static_cast<Caller*>(tag);
    const auto answered = caller->Answered();
    if (!answered && ++failed < 10) ADD_FAILURE() << answered.message();
    if (done + kCallers < kCalls) caller->Start(done + kCallers);
  }
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(server.Metric("weir_requests_in_flight"), 0);
  EXPECT_TRUE(ServesOn(server));
}

}  // namespace
}  // namespace weir::testing
