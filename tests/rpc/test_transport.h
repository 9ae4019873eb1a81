// A transport on the loopback interface whose ModelInfer is the given handler,
// and a stock client connected to it.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "proto/inference/grpc_service.grpc.pb.h"
#include "server/rpc/method_table.h"
#include "server/rpc/transport.h"
#include "tests/rpc/connect.h"

namespace weir {

using InferStub = inference::GRPCInferenceService::Stub;

// ModelInferRequest and its response have the same first fields, so that a
// request without tensors comes back as a response.
inline void EchoCall(ServerCall& call) {
  ReplyBuffer reply;
  if (const size_t size = call.request().size(); size > 0) {
    call.request().CopyTo(
        reinterpret_cast<std::byte*>(reply.AppendUninitialized(size)));
  }
  call.Reply(std::move(reply));
}

inline std::unique_ptr<Transport> StartTransport(
    MethodHandler handler,
    TransportOptions options = {.addresses = {"127.0.0.1:0"}}) {
  MethodTable table;
  table.Add("inference.GRPCInferenceService", "ModelInfer", Traffic::kHeavy,
            std::move(handler));
  if (options.io_threads == 0) options.io_threads = 2;
  auto transport = Transport::Start(std::move(options), table);
  EXPECT_TRUE(transport.ok()) << transport.status();
  return transport.ok() ? *std::move(transport) : nullptr;
}

using testing::Connect;

struct Answer {
  grpc::Status status;
  inference::ModelInferResponse response;
};

inline Answer Infer(InferStub& stub, const std::string& id,
                    grpc::ClientContext* context) {
  inference::ModelInferRequest request;
  request.set_id(id);
  Answer answer;
  answer.status = stub.ModelInfer(context, request, &answer.response);
  return answer;
}

inline Answer Infer(InferStub& stub, const std::string& id) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::seconds(20));
  return Infer(stub, id, &context);
}

}  // namespace weir
