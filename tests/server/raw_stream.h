// A stream of any service, in messages that are bytes: for protocols whose
// generated classes gRPC's packages do not ship (health, reflection), and for
// what a generated stub would not send.
#pragma once

#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/generic/generic_stub.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/server/server_fixture.h"

namespace weir::testing {

// Used by one thread. Every call waits.
class RawStream {
 public:
  RawStream(TestServer& server, const std::string& method);
  ~RawStream();
  RawStream(const RawStream&) = delete;
  RawStream& operator=(const RawStream&) = delete;

  // False if the stream has ended.
  bool Write(const std::string& message);
  void WritesDone();
  // Nothing if the stream has ended.
  std::optional<std::string> Read();
  grpc::Status Finish();

 private:
  bool Wait();

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  grpc::GenericStub stub_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  bool finished_ = false;
};

// A message of one field of bytes.
std::string WithField(int number, const std::string& bytes);
// The contents of a message's fields of that number, in order.
std::vector<std::string> FieldsOf(const std::string& message, int number);
// The value of a varint field; 0 if it is not there.
uint64_t NumberOf(const std::string& message, int number);

}  // namespace weir::testing
