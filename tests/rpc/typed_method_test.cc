#include "server/rpc/typed_method.h"

#include <gmock/gmock.h>

#include "proto/inference/grpc_service.grpc.pb.h"
#include "tests/bytes/sliced.h"
#include "tests/rpc/test_transport.h"

namespace weir {
namespace {

using inference::ModelReadyRequest;
using inference::ModelReadyResponse;

TEST(TypedMethodTest, ParsesAcrossPieces) {
  ModelReadyRequest request;
  request.set_name("a model");
  request.set_version("12");
  const std::string bytes = request.SerializeAsString();
  for (size_t piece : {1u, 3u, 100u}) {
    const Sliced sliced(bytes, piece);
    ModelReadyRequest parsed;
    EXPECT_TRUE(ParseMessage(sliced.view(), &parsed).ok());
    EXPECT_EQ(parsed.name(), "a model");
    EXPECT_EQ(parsed.version(), "12");
  }
  const Sliced broken("\x0a\x50", 1);
  ModelReadyRequest parsed;
  const absl::Status status = ParseMessage(broken.view(), &parsed);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("inference.ModelReadyRequest"));
}

TEST(TypedMethodTest, AnswersWithMessageOrStatus) {
  MethodTable table;
  AddUnary<ModelReadyRequest, ModelReadyResponse>(
      &table, "inference.GRPCInferenceService", "ModelReady",
      [](ServerCall&, const ModelReadyRequest& request,
         ModelReadyResponse* response) {
        if (request.name().empty()) return absl::NotFoundError("no name");
        response->set_ready(request.name() == "good");
        return absl::OkStatus();
      });
  const auto transport =
      Transport::Start({.addresses = {"127.0.0.1:0"}, .io_threads = 1}, table);
  ASSERT_TRUE(transport.ok());
  InferStub stub(Connect((*transport)->addresses()[0]));
  const auto ask = [&](const std::string& name, bool* ready) {
    grpc::ClientContext context;
    ModelReadyRequest request;
    request.set_name(name);
    ModelReadyResponse response;
    const grpc::Status status = stub.ModelReady(&context, request, &response);
    *ready = response.ready();
    return status.error_code();
  };
  bool ready = false;
  EXPECT_EQ(ask("good", &ready), grpc::StatusCode::OK);
  EXPECT_TRUE(ready);
  EXPECT_EQ(ask("bad", &ready), grpc::StatusCode::OK);
  EXPECT_FALSE(ready);
  EXPECT_EQ(ask("", &ready), grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace weir
