// Tensors that are read in pieces, over the wire.
#include <gmock/gmock.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "kernels/base/error_info.h"
#include "proto/weir/v1/evaluator.pb.h"
#include "tests/server/server_fixture.h"
#include "tests/services/space_call_fixture.h"

namespace weir::testing {
namespace {

using ::testing::ElementsAre;

class ReadStreamTest : public SpaceCallTest {
 protected:
  struct Pieces {
    grpc::Status status;
    std::vector<v1::ReadResponse> all;

    std::string bytes() const {
      std::string bytes;
      for (const v1::ReadResponse& each : all) bytes += each.data();
      return bytes;
    }
  };
  Pieces ReadAll(uint64_t tensor, uint64_t offset = 0, uint32_t piece = 0) {
    grpc::ClientContext context;
    Enter(&context);
    v1::ReadRequest request;
    request.set_tensor(tensor);
    request.set_offset(offset);
    request.set_piece_bytes(piece);
    const auto reader = server_.evaluator().Read(&context, request);
    Pieces pieces;
    v1::ReadResponse message;
    while (reader->Read(&message)) pieces.all.push_back(message);
    pieces.status = reader->Finish();
    return pieces;
  }
  // `to` is twice `from`, once timeline 1, which this makes, is at 1.
  void Park(uint64_t from, uint64_t to) {
    CreateTimeline(1);
    v1::EvaluateRequest parked = Double(from, to);
    After(1, 1, &parked);
    const EvaluateAnswer answer = Evaluate(parked);
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  }
  static std::vector<float> Numbers(size_t count) {
    std::vector<float> numbers(count);
    std::iota(numbers.begin(), numbers.end(), 0.0f);
    return numbers;
  }
};

TEST_F(ReadStreamTest, ATensorComesInPieces) {
  const std::vector<float> numbers = Numbers(10'000);
  ASSERT_FALSE(Put(1, numbers).has_error());
  const Pieces pieces = ReadAll(1, 0, 4096);
  ASSERT_TRUE(pieces.status.ok()) << pieces.status.error_message();
  ASSERT_EQ(pieces.all.size(), 10u);
  EXPECT_EQ(pieces.all[0].spec().dtype(), v1::DATA_TYPE_FLOAT);
  EXPECT_THAT(pieces.all[0].spec().shape(), ElementsAre(10'000));
  uint64_t at = 0;
  for (const v1::ReadResponse& piece : pieces.all) {
    EXPECT_EQ(piece.has_spec(), at == 0);
    EXPECT_EQ(piece.offset(), at);
    EXPECT_LE(piece.data().size(), 4096u);
    at += piece.data().size();
  }
  EXPECT_EQ(pieces.bytes(), Bytes(numbers));
  EXPECT_EQ(ReadAll(1).all.size(), 1u);
}

// As after a call that broke, wherever that was.
TEST_F(ReadStreamTest, ItGoesOnFromAnywhere) {
  const std::vector<float> numbers = Numbers(3000);
  ASSERT_FALSE(Put(1, numbers).has_error());
  const std::string bytes = Bytes(numbers);
  for (const uint64_t offset : {1u, 255u, 256u, 4097u, 11'999u, 12'000u}) {
    const Pieces rest = ReadAll(1, offset, 4096);
    ASSERT_TRUE(rest.status.ok()) << rest.status.error_message();
    ASSERT_GE(rest.all.size(), 1u);
    EXPECT_EQ(rest.all[0].offset(), offset);
    EXPECT_TRUE(rest.all[0].has_spec());
    EXPECT_EQ(rest.bytes(), bytes.substr(offset));
  }
  const Pieces beyond = ReadAll(1, 12'001);
  EXPECT_EQ(beyond.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Field(FromGrpcStatus(beyond.status)), "offset");
}

TEST_F(ReadStreamTest, ATensorWithoutElementsIsOnePiece) {
  ASSERT_FALSE(Put(1, {}).has_error());
  const Pieces pieces = ReadAll(1);
  ASSERT_TRUE(pieces.status.ok()) << pieces.status.error_message();
  ASSERT_EQ(pieces.all.size(), 1u);
  EXPECT_TRUE(pieces.all[0].has_spec());
  EXPECT_EQ(pieces.all[0].data(), "");
}

// It waits for the tensor, and reads what its number stood for when it came.
TEST_F(ReadStreamTest, ItReadsTheElementsOfItsTime) {
  ASSERT_FALSE(Put(1, {1, 2}).has_error());
  Park(1, 2);
  Pieces pieces;
  std::thread call([&] { pieces = ReadAll(2); });
  ASSERT_TRUE(Eventually([&] { return Describe().held().waits() == 1; }));
  v1::Command free;
  free.mutable_tensor_free()->set_tensor(2);
  Succeed(free);
  ASSERT_FALSE(Put(2, {9, 9}).has_error());
  ASSERT_FALSE(Signal(1, 1).has_error());
  call.join();
  ASSERT_TRUE(pieces.status.ok()) << pieces.status.error_message();
  EXPECT_EQ(pieces.bytes(), Bytes<float>({2, 4}));
  EXPECT_TRUE(Eventually([&] { return Describe().held().waits() == 0; }));
}

TEST_F(ReadStreamTest, ItsErrorsAreThoseOfItsTensor) {
  Pieces pieces = ReadAll(5);
  EXPECT_EQ(pieces.status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Reason(FromGrpcStatus(pieces.status)), "TENSOR_NOT_FOUND");
  v1::Command allocate;
  allocate.mutable_tensor_allocate()->set_tensor(1);
  allocate.mutable_tensor_allocate()->mutable_spec()->set_dtype(
      v1::DATA_TYPE_FLOAT);
  Succeed(allocate);
  pieces = ReadAll(1);
  EXPECT_EQ(Reason(FromGrpcStatus(pieces.status)), "TENSOR_NOT_COMMITTED");
  ASSERT_FALSE(Put(2, {1}).has_error());
  for (const uint32_t piece : {1u, 4095u, (4u << 20) + 1}) {
    pieces = ReadAll(2, 0, piece);
    EXPECT_EQ(Field(FromGrpcStatus(pieces.status)), "piece_bytes");
  }
  // A work that fails while it is waited for.
  Park(2, 3);
  std::thread call([&] { pieces = ReadAll(3); });
  ASSERT_TRUE(Eventually([&] { return Describe().held().waits() == 1; }));
  v1::Command ends;
  ends.mutable_timeline_delete()->set_timeline(1);
  Succeed(ends);
  call.join();
  EXPECT_EQ(Reason(FromGrpcStatus(pieces.status)), "TIMELINE_DELETED");
  // Without a space.
  grpc::ClientContext nowhere;
  SetPatience(&nowhere);
  const auto reader = server_.evaluator().Read(&nowhere, {});
  v1::ReadResponse message;
  EXPECT_FALSE(reader->Read(&message));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ReadStreamTest, StreamsAreBounded) {
  v1::OpenSpaceRequest small;
  small.mutable_quota()->set_waits(1);
  token_ = Open(small);
  ASSERT_FALSE(Put(1, {1}).has_error());
  Park(1, 2);
  Pieces pieces;
  std::thread call([&] { pieces = ReadAll(2); });
  ASSERT_TRUE(Eventually([&] { return Describe().held().waits() == 1; }));
  EXPECT_EQ(Reason(FromGrpcStatus(ReadAll(1).status)), "SPACE_QUOTA");
  ASSERT_FALSE(Signal(1, 1).has_error());
  call.join();
  EXPECT_TRUE(pieces.status.ok()) << pieces.status.error_message();
}

// A piece is held for as long as its reader likes: it counts.
TEST_F(ReadStreamTest, PiecesThatNobodyTakesAreBounded) {
  v1::OpenSpaceRequest small;
  small.mutable_quota()->set_input_bytes(3 * 4096);
  token_ = Open(small);
  v1::Command fill;
  fill.mutable_tensor_fill()->set_tensor(1);
  fill.mutable_tensor_fill()->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT);
  fill.mutable_tensor_fill()->mutable_spec()->add_shape(4 << 20);
  Succeed(fill);
  grpc::ClientContext context;
  Enter(&context);
  v1::ReadRequest request;
  request.set_tensor(1);
  request.set_piece_bytes(2 * 4096);
  const auto slow = server_.evaluator().Read(&context, request);
  v1::ReadResponse message;
  ASSERT_TRUE(slow->Read(&message));
  const grpc::Status refused = ReadAll(1, 0, 2 * 4096).status;
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Reason(FromGrpcStatus(refused)), "SPACE_QUOTA");
  // A smaller one finds room, as does what is left of a tensor.
  EXPECT_TRUE(ReadAll(1, (16 << 20) - 4096, 2 * 4096).status.ok());
  context.TryCancel();
  while (slow->Read(&message)) {
  }
  slow->Finish();
  ASSERT_TRUE(Eventually([&] { return Describe().held().input_bytes() == 0; }));
  EXPECT_TRUE(ReadAll(1, (16 << 20) - 8192, 2 * 4096).status.ok());
}

// Whoever reads what is deferred has it run.
TEST_F(ReadStreamTest, WhatIsDeferredRunsOnceItIsRead) {
  ASSERT_FALSE(Put(1, {1, 2}).has_error());
  v1::Command create;
  create.mutable_context_create()->set_context(1);
  create.mutable_context_create()->set_mode(v1::EVAL_MODE_DEFERRED);
  Succeed(create);
  v1::EvaluateRequest deferred = Double(1, 2);
  deferred.set_context(1);
  const EvaluateAnswer answer = Evaluate(deferred);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.response.report().state(), v1::WORK_STATE_NOT_ENQUEUED);
  const Pieces pieces = ReadAll(2);
  EXPECT_TRUE(pieces.status.ok()) << pieces.status.error_message();
  EXPECT_EQ(pieces.bytes(), Bytes<float>({2, 4}));
}

// What it holds meanwhile goes when the caller does, at whatever point.
TEST_F(ReadStreamTest, ACallerMayLeave) {
  ASSERT_FALSE(Put(1, Numbers(4 << 20)).has_error());
  Park(1, 2);
  for (const uint64_t tensor : {1u, 2u}) {
    grpc::ClientContext context;
    Enter(&context);
    v1::ReadRequest request;
    request.set_tensor(tensor);
    const auto reader = server_.evaluator().Read(&context, request);
    v1::ReadResponse message;
    if (tensor == 1) {
      ASSERT_TRUE(reader->Read(&message));
    } else {
      ASSERT_TRUE(Eventually([&] { return Describe().held().waits() == 1; }));
    }
    context.TryCancel();
    while (reader->Read(&message)) {
    }
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
    ASSERT_TRUE(Eventually([&] { return Describe().held().waits() == 0; }));
  }
  ASSERT_FALSE(Signal(1, 1).has_error());
}

}  // namespace
}  // namespace weir::testing
