// weir.v1.Spaces over the wire: tokens, leases, quotas, lists, metrics and
// lines.
#include "server/services/spaces_service.h"

#include <gmock/gmock.h>

#include <string>
#include <utility>

#include "kernels/base/error_info.h"
#include "proto/weir/v1/spaces.grpc.pb.h"
#include "server/services/space_header.h"
#include "tests/observe/log_capture.h"
#include "tests/server/server_fixture.h"

namespace weir::testing {
namespace {

using grpc::StatusCode;
using ::testing::HasSubstr;

class SpacesServiceTest : public ::testing::Test {
 protected:
  explicit SpacesServiceTest(
      const std::function<void(ServerOptions&)>& change = nullptr)
      : server_(
            [&](ServerOptions& o) {
              o.log_format = LogFormat::kJson;
              o.log_level = LogLevel::kInfo;
              o.space_tensors = 100;
              o.space_tensor_bytes = 1000;
              if (change != nullptr) change(o);
            },
            log_.stream()),
        stub_(v1::Spaces::NewStub(server_.Connect())) {}

  template <typename Response, typename Request>
  Answer<Response> Call(grpc::Status (v1::Spaces::Stub::*method)(
                            grpc::ClientContext*, const Request&, Response*),
                        const Request& request, const std::string& token = "") {
    grpc::ClientContext context;
    SetPatience(&context);
    if (!token.empty()) {
      context.AddMetadata(std::string(kSpaceHeader), token);
    }
    Answer<Response> answer;
    answer.status = (stub_.get()->*method)(&context, request, &answer.response);
    return answer;
  }
  Answer<v1::OpenSpaceResponse> Open(const v1::OpenSpaceRequest& request = {}) {
    return Call(&v1::Spaces::Stub::Open, request);
  }
  Answer<v1::GetSpaceResponse> Get(const std::string& token) {
    return Call(&v1::Spaces::Stub::Get, v1::GetSpaceRequest(), token);
  }
  Answer<v1::CloseSpaceResponse> Close(const std::string& token) {
    return Call(&v1::Spaces::Stub::Close, v1::CloseSpaceRequest(), token);
  }
  Answer<v1::ListSpacesResponse> List() {
    return Call(&v1::Spaces::Stub::List, v1::ListSpacesRequest());
  }
  static v1::OpenSpaceRequest Labeled(std::string label) {
    v1::OpenSpaceRequest request;
    request.set_label(std::move(label));
    return request;
  }

  LogCapture log_;
  TestServer server_;
  const std::unique_ptr<v1::Spaces::Stub> stub_;
};

std::string ReasonOf(const grpc::Status& status) {
  return Reason(FromGrpcStatus(status));
}

TEST_F(SpacesServiceTest, OpensASpaceOfWhatWasAskedFor) {
  v1::OpenSpaceRequest request = Labeled("training");
  request.set_lease_ns(7'000'000'000);
  request.mutable_quota()->set_tensors(5);
  const auto opened = Open(request);
  ASSERT_TRUE(opened.status.ok()) << opened.status.error_message();
  EXPECT_EQ(opened.response.token().size(), 16u);
  EXPECT_EQ(opened.response.lease_ns(), 7'000'000'000);
  EXPECT_EQ(opened.response.quota().tensors(), 5u);
  EXPECT_EQ(opened.response.quota().tensor_bytes(), 1000u);
  EXPECT_EQ(opened.response.quota().works(), 1024u);

  const auto got = Get(opened.response.token());
  ASSERT_TRUE(got.status.ok()) << got.status.error_message();
  const v1::Space& space = got.response.space();
  EXPECT_EQ(space.id(), opened.response.id());
  EXPECT_EQ(space.label(), "training");
  EXPECT_EQ(space.identity(), "anonymous");
  EXPECT_EQ(space.idle_ns(), 0);
  EXPECT_EQ(space.lease_ns(), 7'000'000'000);
  EXPECT_EQ(space.quota().tensors(), 5u);
  EXPECT_EQ(space.held().tensors(), 0u);
  const int64_t now = absl::GetCurrentTimeNanos();
  EXPECT_LE(space.opened_unix_ns(), now);
  EXPECT_GT(space.opened_unix_ns(), now - 60'000'000'000);
}

TEST_F(SpacesServiceTest, SaysWhichFieldAsksForTooMuch) {
  v1::OpenSpaceRequest request = Labeled(std::string(256, 'x'));
  EXPECT_TRUE(Open(request).status.ok());
  request.set_label(std::string(257, 'x'));
  EXPECT_TRUE(Refused(Open(request).status, StatusCode::INVALID_ARGUMENT,
                      "at most 256 bytes"));
  EXPECT_EQ(Field(FromGrpcStatus(Open(request).status)), "label");
  request.clear_label();
  request.set_lease_ns(-1);
  EXPECT_EQ(Field(FromGrpcStatus(Open(request).status)), "lease_ns");
  request.clear_lease_ns();
  request.mutable_quota()->set_tensors(101);
  EXPECT_EQ(Field(FromGrpcStatus(Open(request).status)), "quota.tensors");
}

TEST_F(SpacesServiceTest, ACallNamesItsSpaceByItsToken) {
  const std::string token = Open().response.token();
  for (const auto& status : {Get("").status, Close("").status}) {
    EXPECT_TRUE(
        Refused(status, StatusCode::INVALID_ARGUMENT, "weir-space-bin"));
  }
  EXPECT_TRUE(Refused(Get(token + "x").status, StatusCode::INVALID_ARGUMENT,
                      "weir-space-bin has 17 bytes"));
  std::string other = token;
  other.back() = static_cast<char>(other.back() ^ 1);
  const auto unknown = Get(other).status;
  EXPECT_EQ(unknown.error_code(), StatusCode::NOT_FOUND);
  EXPECT_EQ(ReasonOf(unknown), "SPACE_NOT_FOUND");
  other[2] = static_cast<char>(other[2] ^ 1);
  EXPECT_EQ(ReasonOf(Get(other).status), "SPACE_LOST");
  EXPECT_TRUE(Get(token).status.ok());
}

// Another server, as one that was started again.
TEST_F(SpacesServiceTest, ATokenIsOfOneServer) {
  const std::string token = Open().response.token();
  TestServer other;
  const auto stub = v1::Spaces::NewStub(other.Connect());
  grpc::ClientContext context;
  SetPatience(&context);
  context.AddMetadata(std::string(kSpaceHeader), token);
  v1::GetSpaceResponse response;
  const grpc::Status status = stub->Get(&context, {}, &response);
  EXPECT_EQ(status.error_code(), StatusCode::NOT_FOUND);
}

TEST_F(SpacesServiceTest, AClosedSpaceIsGone) {
  const std::string token = Open(Labeled("a label")).response.token();
  EXPECT_EQ(server_.Metric("weir_spaces"), 1);
  const auto closed = Close(token);
  ASSERT_TRUE(closed.status.ok()) << closed.status.error_message();
  EXPECT_EQ(closed.response.held().tensors(), 0u);
  EXPECT_EQ(ReasonOf(Get(token).status), "SPACE_NOT_FOUND");
  EXPECT_EQ(ReasonOf(Close(token).status), "SPACE_NOT_FOUND");
  EXPECT_EQ(server_.Metric("weir_spaces"), 0);
  EXPECT_EQ(server_.Metric("weir_spaces_opened_total"), 1);
  EXPECT_EQ(server_.Metric("weir_spaces_closed_total{why=\"closed\"}"), 1);
  EXPECT_EQ(server_.Metric("weir_spaces_closed_total{why=\"lease\"}"), 0);
  for (const char* what : {"tensor_bytes", "tensors", "contexts", "timelines",
                           "works", "sessions"}) {
    EXPECT_EQ(
        server_.Metric("weir_space_held{what=\"" + std::string(what) + "\"}"),
        0);
  }
  const auto opened = log_.Events("space opened");
  ASSERT_EQ(opened.size(), 1u);
  EXPECT_EQ(opened[0]["level"], "info");
  EXPECT_EQ(opened[0]["space"], 1);
  EXPECT_EQ(opened[0]["label"], "a label");
  EXPECT_EQ(opened[0]["identity"], "anonymous");
  const auto ended = log_.Events("space closed");
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0]["space"], 1);
  EXPECT_EQ(ended[0]["why"], "closed");
  EXPECT_EQ(ended[0]["tensors"], 0);
}

TEST_F(SpacesServiceTest, NobodyLearnsTheTokensOfOthers) {
  const std::string token = Open().response.token();
  Open();
  const auto list = List();
  ASSERT_TRUE(list.status.ok()) << list.status.error_message();
  EXPECT_EQ(list.response.spaces_size(), 0) << "anonymous is many people";
  EXPECT_EQ(list.response.total(), 2u);
  EXPECT_EQ(list.response.held().tensors(), 0u);
  EXPECT_TRUE(list.response.next_page_token().empty());
  // Neither do lines tell them.
  for (const char* message : {"space opened", "call answered"}) {
    for (const auto& event : log_.Events(message)) {
      EXPECT_EQ(
          event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
              .find(token),
          std::string::npos);
    }
  }
}

TEST_F(SpacesServiceTest, ASpaceThatNobodyUsesIsClosedByItself) {
  v1::OpenSpaceRequest request = Labeled("forgotten");
  request.set_lease_ns(1);
  const std::string token = Open(request).response.token();
  EXPECT_EQ(ReasonOf(Get(token).status), "SPACE_NOT_FOUND");
  const std::string kept = Open().response.token();
  ASSERT_TRUE(Eventually([&] {
    return server_.Metric("weir_spaces_closed_total{why=\"lease\"}") == 1;
  }));
  EXPECT_EQ(server_.Metric("weir_spaces"), 1);
  EXPECT_TRUE(Get(kept).status.ok());
  ASSERT_TRUE(Eventually([&] { return !log_.Events("space closed").empty(); }));
  const auto ended = log_.Events("space closed");
  EXPECT_EQ(ended[0]["label"], "forgotten");
  EXPECT_EQ(ended[0]["why"], "lease");
}

class FewSpacesTest : public SpacesServiceTest {
 protected:
  FewSpacesTest()
      : SpacesServiceTest([](ServerOptions& o) { o.max_spaces = 2; }) {}
};

TEST_F(FewSpacesTest, MoreThanThereMayBeAreRefusedAndCounted) {
  const std::string token = Open().response.token();
  ASSERT_TRUE(Open().status.ok());
  const auto full = Open().status;
  EXPECT_TRUE(Refused(full, StatusCode::RESOURCE_EXHAUSTED,
                      "has 2 of at most 2 spaces"));
  EXPECT_EQ(ReasonOf(full), "SPACE_QUOTA");
  EXPECT_TRUE(RetryAfter(FromGrpcStatus(full)).has_value());
  EXPECT_TRUE(server_.Settles());
  EXPECT_EQ(server_.Refused("Open", "SPACE_QUOTA"), 1);
  ASSERT_TRUE(Close(token).status.ok());
  EXPECT_TRUE(Open().status.ok());
}

class NoSpacesTest : public SpacesServiceTest {
 protected:
  NoSpacesTest()
      : SpacesServiceTest([](ServerOptions& o) { o.max_spaces = 0; }) {}
};

TEST_F(NoSpacesTest, AServerWithoutSpacesAnswersAsIfThereWereNone) {
  EXPECT_EQ(Open().status.error_code(), StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(List().status.error_code(), StatusCode::UNIMPLEMENTED);
  EXPECT_TRUE(ServesOn(server_));
  grpc::ClientContext context;
  SetPatience(&context);
  context.AddMetadata(std::string(kSpaceHeader), std::string(16, 'x'));
  v1::EvaluateResponse response;
  EXPECT_TRUE(Refused(
      server_.evaluator().Evaluate(&context, IdentityRequest(), &response),
      StatusCode::UNIMPLEMENTED, "this server offers no spaces"));
  EXPECT_THAT(server_.HttpGet("/metrics"),
              ::testing::Not(HasSubstr("\nweir_spaces ")));
}

}  // namespace
}  // namespace weir::testing
