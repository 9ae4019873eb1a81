// The log line of a call: who called what, how it ended, and under which ids.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/observe/log_capture.h"
#include "tests/server/server_fixture.h"

namespace weir::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

constexpr char kTraceId[] = "4bf92f3577b34da6a3ce929d0e0e4736";

class CallLogTest : public ::testing::Test {
 protected:
  explicit CallLogTest(LogLevel level = LogLevel::kDebug)
      : server_(
            [level](ServerOptions& o) {
              o.model_repository = TestData("data");
              o.log_format = LogFormat::kJson;
              o.log_level = level;
            },
            log_.stream()) {}

  grpc::Status Call(
      const v1::EvaluateRequest& request,
      const std::vector<std::pair<std::string, std::string>>& headers = {}) {
    grpc::ClientContext context;
    SetPatience(&context);
    for (const auto& [name, value] : headers) context.AddMetadata(name, value);
    v1::EvaluateResponse response;
    return server_.evaluator().Evaluate(&context, request, &response);
  }

  // A call's line follows its answer.
  std::vector<nlohmann::json> Events(const char* message) {
    EXPECT_TRUE(server_.Settles());
    return log_.Events(message);
  }

  static v1::EvaluateRequest BadRequest() {
    v1::EvaluateRequest request = IdentityRequest();
    request.clear_inputs();
    return request;
  }

  LogCapture log_;
  TestServer server_;
};

TEST_F(CallLogTest, TellsAboutACall) {
  v1::EvaluateRequest request = IdentityRequest();
  request.set_label("step 3");
  ASSERT_TRUE(Call(request, {{"x-request-id", "order-7"},
                             {"traceparent", std::string("00-") + kTraceId +
                                                 "-00f067aa0ba902b7-01"}})
                  .ok());
  const auto events = Events("call answered");
  ASSERT_EQ(events.size(), 1u);
  const nlohmann::json& line = events[0];
  EXPECT_EQ(line["level"], "debug");
  EXPECT_EQ(line["request_id"], "order-7");
  EXPECT_EQ(line["method"], "Evaluate");
  EXPECT_EQ(line["code"], "OK");
  EXPECT_GT(line["duration_us"].get<int64_t>(), 0);
  EXPECT_THAT(line["peer"].get<std::string>(), StartsWith("ipv4:127.0.0.1:"));
  EXPECT_EQ(line["trace_id"], kTraceId);
  EXPECT_EQ(line["label"], "step 3");
  EXPECT_FALSE(line.contains("error"));
}

// Calls share their objects, one after the other.
TEST_F(CallLogTest, ALabelIsThatOfItsCall) {
  v1::EvaluateRequest bad = BadRequest();
  bad.set_label("step 4");
  EXPECT_FALSE(Call(bad).ok());
  EXPECT_TRUE(server_.Settles());
  EXPECT_FALSE(Call(BadRequest()).ok());
  const auto events = Events("call failed");
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0]["label"], "step 4");
  EXPECT_FALSE(events[1].contains("label"));
}

TEST_F(CallLogTest, TellsWhyACallFailed) {
  EXPECT_FALSE(Call(BadRequest()).ok());
  const auto events = Events("call failed");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["level"], "info");
  EXPECT_EQ(events[0]["code"], "INVALID_ARGUMENT");
  EXPECT_THAT(events[0]["error"].get<std::string>(), HasSubstr(R"(input "x")"));
  EXPECT_FALSE(events[0].contains("reason"));
}

// As the caller is told it, and as docs/errors.md lists it.
TEST_F(CallLogTest, TellsTheReasonOfAFailure) {
  inference::ModelInferRequest request;
  request.set_model_name("nothing");
  EXPECT_FALSE(Infer(server_, request).status.ok());
  const auto events = Events("call failed");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["code"], "NOT_FOUND");
  EXPECT_EQ(events[0]["reason"], "MODEL_NOT_FOUND");
  LogCapture text;
  TestServer plain([](ServerOptions& o) { o.log_level = LogLevel::kInfo; },
                   text.stream());
  EXPECT_FALSE(Infer(plain, request).status.ok());
  EXPECT_TRUE(plain.Settles());
  EXPECT_THAT(text.Lines(),
              ::testing::Contains(HasSubstr(" reason=MODEL_NOT_FOUND error=")));
}

// Of what callers choose; they themselves are told more.
TEST_F(CallLogTest, ALongErrorIsCut) {
  constexpr int kNodes = 100;
  v1::EvaluateRequest circle = IdentityRequest();
  v1::GraphDefinition& graph = *circle.mutable_graph()->mutable_definition();
  graph.clear_nodes();
  for (int i = 0; i < kNodes; ++i) {
    v1::Node& node = *graph.add_nodes();
    node.set_name(std::string(200, 'n'));
    node.set_op("Neg");
    node.add_inputs("v" + std::to_string(i));
    node.add_outputs("v" + std::to_string((i + 1) % kNodes));
  }
  graph.set_outputs(0, "v0");
  const grpc::Status status = Call(circle);
  ASSERT_GT(status.error_message().size(), 512u) << status.error_message();
  const auto events = Events("call failed");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["error"].get<std::string>(),
            status.error_message().substr(0, 512));
}

TEST_F(CallLogTest, EveryCallHasAnId) {
  // A KServe request brings its own, unless the header says otherwise.
  inference::ModelInferRequest request;
  request.set_model_name("nothing");
  request.set_id("kserve-3");
  EXPECT_FALSE(Infer(server_, request).status.ok());
  EXPECT_TRUE(server_.Settles());
  EXPECT_FALSE(Call(BadRequest()).ok());
  EXPECT_TRUE(server_.Settles());
  EXPECT_FALSE(Call(BadRequest()).ok());
  EXPECT_TRUE(server_.Settles());
  EXPECT_FALSE(
      Call(BadRequest(), {{"x-request-id", std::string(5000, 'i')}}).ok());
  const auto events = Events("call failed");
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0]["request_id"], "kserve-3");
  const std::string first = events[1]["request_id"];
  EXPECT_THAT(first, MatchesRegex("[0-9a-f]{16}-[0-9]+"));
  EXPECT_NE(first, events[2]["request_id"]);
  EXPECT_EQ(events[3]["request_id"], std::string(128, 'i'));
}

TEST_F(CallLogTest, ATraceparentThatBreaksTheRulesIsPassedOver) {
  for (const std::string& header :
       {std::string("00-") + kTraceId + "-00f067aa0ba902b7",
        std::string("00-") + std::string(32, '0') + "-00f067aa0ba902b7-01",
        std::string("garbage")}) {
    EXPECT_TRUE(Call(IdentityRequest(), {{"traceparent", header}}).ok());
  }
  const auto events = Events("call answered");
  ASSERT_EQ(events.size(), 3u);
  for (const auto& event : events) EXPECT_FALSE(event.contains("trace_id"));
}

TEST_F(CallLogTest, TheLevelChangesWhileTheServerRuns) {
  auto set_level = [&](v1::LogLevel level) {
    grpc::ClientContext context;
    SetPatience(&context);
    v1::SetLogLevelRequest request;
    request.set_level(level);
    v1::SetLogLevelResponse response;
    EXPECT_TRUE(server_.admin().SetLogLevel(&context, request, &response).ok());
    return response.previous();
  };
  EXPECT_EQ(set_level(v1::LOG_LEVEL_INFO), v1::LOG_LEVEL_DEBUG);
  EXPECT_TRUE(Call(IdentityRequest()).ok());
  EXPECT_FALSE(Call(BadRequest()).ok());
  EXPECT_EQ(Events("call failed").size(), 1u);
  EXPECT_EQ(Events("call answered").size(), 0u);
  EXPECT_EQ(set_level(v1::LOG_LEVEL_ERROR), v1::LOG_LEVEL_INFO);
  EXPECT_FALSE(Call(BadRequest()).ok());
  EXPECT_EQ(Events("call failed").size(), 1u);
  EXPECT_EQ(set_level(v1::LOG_LEVEL_DEBUG), v1::LOG_LEVEL_ERROR);
  EXPECT_TRUE(Call(IdentityRequest()).ok());
  // The change itself is a call too, logged at the level that it sets.
  EXPECT_EQ(Events("call answered").size(), 2u);
}

// However many calls fail, the log grows slowly, and says what it left out.
TEST_F(CallLogTest, AFloodOfFailuresDoesNotFloodTheLog) {
  constexpr int kCalls = 1000;
  const v1::EvaluateRequest bad = BadRequest();
  for (int i = 0; i < kCalls; ++i) ASSERT_FALSE(Call(bad).ok());
  const size_t written = Events("call failed").size();
  const double suppressed = server_.Metric("weir_log_lines_suppressed_total");
  EXPECT_GE(written, 100u);
  EXPECT_GT(suppressed, 0);
  EXPECT_EQ(static_cast<double>(written) + suppressed, kCalls);
  server_.server().Drain([](absl::Duration) { return true; });
  double told = 0;
  for (const auto& event : log_.Events("lines of failed calls were left out")) {
    EXPECT_EQ(event["level"], "warning");
    told += event["count"].get<double>();
  }
  EXPECT_EQ(told, suppressed);
}

}  // namespace
}  // namespace weir::testing
