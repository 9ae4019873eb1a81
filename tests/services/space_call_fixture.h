// A server, a space on it, and what a client of that space calls.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/weir/v1/evaluator.pb.h"
#include "proto/weir/v1/spaces.grpc.pb.h"
#include "tests/server/server_fixture.h"

namespace weir::testing {

inline constexpr char kSpaceHeader[] = "weir-space-bin";

// A server, and a space of a client's on it.
class SpaceCallTest : public ::testing::Test {
 protected:
  explicit SpaceCallTest(
      const std::function<void(ServerOptions&)>& change = nullptr)
      : server_(change) {}

  void SetUp() override { token_ = Open(); }

  std::string Open(const v1::OpenSpaceRequest& request = {}) {
    grpc::ClientContext context;
    SetPatience(&context);
    v1::OpenSpaceResponse response;
    const grpc::Status status = spaces_->Open(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.token();
  }

  void Enter(grpc::ClientContext* context, const std::string& token) const {
    SetPatience(context);
    context->AddMetadata(kSpaceHeader, token);
  }
  void Enter(grpc::ClientContext* context) const { Enter(context, token_); }

  EvaluateAnswer Evaluate(const v1::EvaluateRequest& request) {
    return EvaluateIn(token_, request);
  }
  EvaluateAnswer EvaluateIn(const std::string& token,
                            const v1::EvaluateRequest& request) {
    grpc::ClientContext context;
    Enter(&context, token);
    EvaluateAnswer answer;
    answer.status =
        server_.evaluator().Evaluate(&context, request, &answer.response);
    return answer;
  }

  v1::RunResponse Run(const v1::RunRequest& request) {
    grpc::ClientContext context;
    Enter(&context);
    v1::RunResponse response;
    const grpc::Status status =
        server_.evaluator().Run(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.results_size(), request.commands_size());
    return response;
  }
  // The result of one command.
  v1::CommandResult RunOne(v1::Command command) {
    v1::RunRequest request;
    *request.add_commands() = std::move(command);
    v1::RunResponse response = Run(request);
    return response.results_size() == 1 ? response.results(0)
                                        : v1::CommandResult();
  }

  v1::CommandResult Put(uint64_t tensor, const std::vector<float>& values) {
    v1::Command command;
    v1::TensorPut* const put = command.mutable_tensor_put();
    put->set_tensor(tensor);
    put->set_mode(v1::EVAL_MODE_SYNC_FULL);
    put->mutable_value()->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT);
    put->mutable_value()->mutable_spec()->add_shape(
        static_cast<int64_t>(values.size()));
    put->mutable_value()->set_raw(Bytes(values));
    return RunOne(command);
  }
  v1::CommandResult Get(uint64_t tensor) {
    v1::Command command;
    command.mutable_tensor_get()->set_tensor(tensor);
    return RunOne(command);
  }
  std::vector<float> Read(uint64_t tensor) {
    const v1::CommandResult result = Get(tensor);
    EXPECT_FALSE(result.has_error()) << result.error().message();
    if (result.tensor_get().outputs_size() != 1) return {};
    return Values<float>(result.tensor_get().outputs(0).value().raw());
  }
  void CreateTimeline(uint64_t timeline) {
    v1::Command command;
    command.mutable_timeline_create()->set_timeline(timeline);
    const v1::CommandResult result = RunOne(command);
    EXPECT_FALSE(result.has_error()) << result.error().message();
  }
  v1::CommandResult Signal(uint64_t timeline, uint64_t value) {
    v1::Command command;
    command.mutable_timeline_signal()->set_timeline(timeline);
    command.mutable_timeline_signal()->set_value(value);
    return RunOne(command);
  }
  void CreateContext(uint64_t context,
                     v1::EvalMode mode = v1::EVAL_MODE_UNSPECIFIED) {
    v1::Command command;
    command.mutable_context_create()->set_context(context);
    command.mutable_context_create()->set_mode(mode);
    const v1::CommandResult result = RunOne(command);
    EXPECT_FALSE(result.has_error()) << result.error().message();
  }
  v1::WorkStatus Query(uint64_t work) {
    v1::Command command;
    command.mutable_query()->set_work(work);
    const v1::CommandResult result = RunOne(command);
    EXPECT_FALSE(result.has_error()) << result.error().message();
    return result.query();
  }
  // A result that is not to be an error.
  v1::CommandResult Succeed(v1::Command command) {
    v1::CommandResult result = RunOne(std::move(command));
    EXPECT_FALSE(result.has_error()) << result.error().message();
    return result;
  }
  // The failure of a command that is to fail.
  v1::Failure Failing(v1::Command command) {
    const v1::CommandResult result = RunOne(std::move(command));
    EXPECT_TRUE(result.has_error());
    return result.error();
  }
  v1::Space Describe() {
    grpc::ClientContext context;
    Enter(&context);
    v1::GetSpaceResponse response;
    const grpc::Status status = spaces_->Get(&context, {}, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.space();
  }
  void Close() {
    grpc::ClientContext context;
    Enter(&context);
    v1::CloseSpaceResponse response;
    EXPECT_TRUE(spaces_->Close(&context, {}, &response).ok());
  }

  TestServer server_;
  std::unique_ptr<v1::Spaces::Stub> spaces_ =
      v1::Spaces::NewStub(server_.Connect());
  std::string token_;
};

// y = x + x, of a tensor that is kept, to be kept.
inline v1::EvaluateRequest Double(uint64_t from, uint64_t to) {
  v1::EvaluateRequest request = Program(R"(
      inputs { name: "x" }
      nodes { op: "Add" inputs: "x" inputs: "x" outputs: "y" }
      outputs: "y")");
  v1::NamedTensor* const input = request.add_inputs();
  input->set_name("x");
  input->mutable_value()->set_tensor(from);
  v1::OutputRequest* const output = request.add_outputs();
  output->set_name("y");
  output->set_tensor(to);
  return request;
}

// It waits until a timeline is at `value`.
inline void After(uint64_t timeline, uint64_t value,
                  v1::EvaluateRequest* request) {
  v1::Point* const point = request->add_after();
  point->set_timeline(timeline);
  point->set_value(value);
}

inline const std::string& ReasonOf(const v1::Failure& failure) {
  return failure.reason();
}

}  // namespace weir::testing
