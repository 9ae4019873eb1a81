#include "tests/server/raw_stream.h"

namespace weir::testing {
RawStream::RawStream(TestServer& server, const std::string& method)
    : stub_(server.Connect()) {
  SetPatience(&context_);
  stream_ = stub_.PrepareCall(&context_, method, &queue_);
  stream_->StartCall(nullptr);
  Wait();
}

RawStream::~RawStream() {
  context_.TryCancel();
  if (!finished_) Finish();
}

bool RawStream::Wait() {
  void* tag = nullptr;
  bool ok = false;
  return queue_.Next(&tag, &ok) && ok;
}

bool RawStream::Write(const std::string& message) {
  const grpc::Slice slice(message);
  stream_->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  return Wait();
}

void RawStream::WritesDone() {
  stream_->WritesDone(nullptr);
  Wait();
}

std::optional<std::string> RawStream::Read() {
  grpc::ByteBuffer buffer;
  stream_->Read(&buffer, nullptr);
  if (!Wait()) return std::nullopt;
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string message;
  for (const grpc::Slice& slice : slices) {
    message.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return message;
}

grpc::Status RawStream::Finish() {
  finished_ = true;
  grpc::Status status;
  stream_->Finish(&status, nullptr);
  Wait();
  return status;
}

std::string WithField(int number, const std::string& bytes) {
  google::protobuf::UnknownFieldSet fields;
  fields.AddLengthDelimited(number, bytes);
  std::string message;
  EXPECT_TRUE(fields.SerializeToString(&message));
  return message;
}

std::vector<std::string> FieldsOf(const std::string& message, int number) {
  std::vector<std::string> found;
  google::protobuf::UnknownFieldSet fields;
  EXPECT_TRUE(fields.ParseFromString(message));
  for (int i = 0; i < fields.field_count(); ++i) {
    const google::protobuf::UnknownField& field = fields.field(i);
    if (field.number() == number) found.push_back(field.length_delimited());
  }
  return found;
}

uint64_t NumberOf(const std::string& message, int number) {
  google::protobuf::UnknownFieldSet fields;
  EXPECT_TRUE(fields.ParseFromString(message));
  for (int i = 0; i < fields.field_count(); ++i) {
    if (fields.field(i).number() == number) return fields.field(i).varint();
  }
  return 0;
}

}  // namespace weir::testing
