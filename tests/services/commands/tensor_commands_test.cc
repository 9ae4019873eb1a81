// Tensors that are allocated, committed, copied, filled and written into, over
// the wire.
#include <gmock/gmock.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "proto/weir/v1/evaluator.pb.h"
#include "server/device_list.h"
#include "tests/server/server_fixture.h"
#include "tests/services/space_call_fixture.h"

namespace weir::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kInvalid = static_cast<int>(grpc::INVALID_ARGUMENT);

class TensorCommandsTest : public SpaceCallTest {
 protected:
  using SpaceCallTest::SpaceCallTest;

  static v1::Command Allocate(uint64_t tensor, std::vector<int64_t> shape,
                              v1::DataType dtype = v1::DATA_TYPE_FLOAT) {
    v1::Command command;
    v1::TensorAllocate* const allocate = command.mutable_tensor_allocate();
    allocate->set_tensor(tensor);
    allocate->mutable_spec()->set_dtype(dtype);
    for (const int64_t extent : shape) {
      allocate->mutable_spec()->add_shape(extent);
    }
    return command;
  }
  static v1::Command Commit(uint64_t tensor) {
    v1::Command command;
    command.mutable_tensor_commit()->set_tensor(tensor);
    return command;
  }
  static v1::Command Copy(uint64_t source, uint64_t tensor, bool into = false) {
    v1::Command command;
    command.mutable_tensor_copy()->set_source(source);
    command.mutable_tensor_copy()->set_tensor(tensor);
    command.mutable_tensor_copy()->set_into_existing(into);
    return command;
  }
  static v1::Command Fill(uint64_t tensor, const std::string& value,
                          bool into = true) {
    v1::Command command;
    command.mutable_tensor_fill()->set_tensor(tensor);
    command.mutable_tensor_fill()->set_value(value);
    command.mutable_tensor_fill()->set_into_existing(into);
    return command;
  }
  static v1::Command PutInto(uint64_t tensor,
                             const std::vector<float>& values) {
    v1::Command command;
    v1::TensorPut* const put = command.mutable_tensor_put();
    put->set_tensor(tensor);
    put->set_into_existing(true);
    put->mutable_value()->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT);
    put->mutable_value()->mutable_spec()->add_shape(
        static_cast<int64_t>(values.size()));
    put->mutable_value()->set_raw(Bytes(values));
    return command;
  }
  static v1::Command Free(uint64_t tensor) {
    v1::Command command;
    command.mutable_tensor_free()->set_tensor(tensor);
    return command;
  }
  // y = x + x, written into `to`.
  static v1::EvaluateRequest DoubleInto(uint64_t from, uint64_t to) {
    v1::EvaluateRequest request = Double(from, 0);
    request.mutable_outputs(0)->set_into(to);
    return request;
  }
  v1::TensorDescription DescribeTensor(uint64_t tensor) {
    v1::Command command;
    command.mutable_tensor_describe()->set_tensor(tensor);
    return Succeed(command).tensor_describe();
  }
};

// -- Written into -------------------------------------------------------------

// Who was accepted before reads what was there before; who comes later, what is
// there now; and nobody waits for the other.
TEST_F(TensorCommandsTest, AWriteLeavesEarlierReadersTheirElements) {
  ASSERT_FALSE(Put(1, {1, 2}).has_error());
  CreateTimeline(1);
  v1::EvaluateRequest early = Double(1, 2);
  After(1, 1, &early);
  ASSERT_TRUE(Evaluate(early).status.ok());
  // The reader is parked, and the writes are done.
  Succeed(PutInto(1, {10, 20}));
  EXPECT_EQ(Read(1), (std::vector<float>{10, 20}));
  const EvaluateAnswer doubled = Evaluate(DoubleInto(1, 1));
  ASSERT_TRUE(doubled.status.ok()) << doubled.status.error_message();
  ASSERT_EQ(doubled.response.outputs_size(), 1);
  EXPECT_EQ(doubled.response.outputs(0).value().tensor(), 1u);
  EXPECT_EQ(Read(1), (std::vector<float>{20, 40}));
  // What the reader is to read counts, though no number stands for it, and so
  // does what it makes.
  EXPECT_TRUE(
      Eventually([&] { return Describe().held().tensor_bytes() == 24; }));
  EXPECT_EQ(Describe().held().tensors(), 2u);
  ASSERT_FALSE(Signal(1, 1).has_error());
  EXPECT_EQ(Read(2), (std::vector<float>{2, 4}));
  EXPECT_TRUE(
      Eventually([&] { return Describe().held().tensor_bytes() == 16; }));
}

// A reader that comes between two writes that are parked reads the first.
TEST_F(TensorCommandsTest, CommandsReadWhatTheNumberStoodForWhenTheyCame) {
  ASSERT_FALSE(Put(1, {1}).has_error());
  CreateTimeline(1);
  v1::EvaluateRequest write = DoubleInto(1, 1);
  After(1, 1, &write);
  ASSERT_TRUE(Evaluate(write).status.ok());             // 2
  ASSERT_TRUE(Evaluate(Double(1, 2)).status.ok());      // 4, of the first
  ASSERT_TRUE(Evaluate(DoubleInto(1, 1)).status.ok());  // 4
  ASSERT_TRUE(Evaluate(DoubleInto(1, 1)).status.ok());  // 8
  EXPECT_FALSE(DescribeTensor(1).ready());
  ASSERT_FALSE(Signal(1, 1).has_error());
  EXPECT_EQ(Read(2), (std::vector<float>{4}));
  EXPECT_EQ(Read(1), (std::vector<float>{8}));
}

TEST_F(TensorCommandsTest, WhatDoesNotFitIsNotWritten) {
  ASSERT_FALSE(Put(1, {1, 2}).has_error());
  EXPECT_EQ(ReasonOf(Failing(PutInto(7, {1}))), "TENSOR_NOT_FOUND");
  EXPECT_EQ(Failing(PutInto(7, {1})).field(), "tensor");
  EvaluateAnswer answer = Evaluate(DoubleInto(1, 7));
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Field(FromGrpcStatus(answer.status)), "outputs[0].into");
  v1::EvaluateRequest cast = Program(R"(
      inputs { name: "x" }
      nodes { op: "Cast" inputs: "x" outputs: "y"
              attributes { name: "to" i: 7 } }
      outputs: "y")");
  cast.add_inputs()->set_name("x");
  cast.mutable_inputs(0)->mutable_value()->set_tensor(1);
  cast.add_outputs()->set_name("y");
  cast.mutable_outputs(0)->set_into(1);
  answer = Evaluate(cast);
  EXPECT_EQ(Reason(FromGrpcStatus(answer.status)), "TENSOR_MISMATCH");
  EXPECT_EQ(Read(1), (std::vector<float>{1, 2}));
  // Its size is found when it runs: then the number stands for the failure.
  v1::Command longer = PutInto(1, {1, 2, 3});
  longer.mutable_tensor_put()->set_mode(v1::EVAL_MODE_SYNC_FULL);
  const v1::Failure failure = Failing(longer);
  EXPECT_EQ(ReasonOf(failure), "TENSOR_MISMATCH") << failure.message();
  EXPECT_EQ(ReasonOf(Get(1).error()), "TENSOR_MISMATCH");
  ASSERT_FALSE(Put(1, {5}).has_error());
  EXPECT_EQ(Read(1), (std::vector<float>{5}));
}

TEST_F(TensorCommandsTest, TwoOutputsAreNotWrittenIntoOneTensor) {
  ASSERT_FALSE(Put(1, {3}).has_error());
  v1::EvaluateRequest two = Program(R"(
      inputs { name: "x" }
      nodes { op: "Add" inputs: "x" inputs: "x" outputs: "y" }
      nodes { op: "Mul" inputs: "x" inputs: "x" outputs: "z" }
      outputs: "y" outputs: "z")");
  two.add_inputs()->set_name("x");
  two.mutable_inputs(0)->mutable_value()->set_tensor(1);
  two.add_outputs()->set_name("y");
  two.mutable_outputs(0)->set_into(1);
  two.add_outputs()->set_name("z");
  two.mutable_outputs(1)->set_into(1);
  const EvaluateAnswer answer = Evaluate(two);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Field(FromGrpcStatus(answer.status)), "outputs[1].into");
  EXPECT_EQ(Read(1), (std::vector<float>{3}));
}

// A number that was freed before its write was accepted stays free.
TEST_F(TensorCommandsTest, AFreedNumberStandsForNoLaterWrite) {
  ASSERT_FALSE(Put(1, {3}).has_error());
  Succeed(Free(1));
  EXPECT_EQ(ReasonOf(Failing(PutInto(1, {1}))), "TENSOR_NOT_FOUND");
  EXPECT_EQ(Describe().held().tensors(), 0u);
}

TEST_F(TensorCommandsTest, AQuotaHoldsForWhatIsWritten) {
  v1::OpenSpaceRequest small;
  small.mutable_quota()->set_tensor_bytes(100);
  small.mutable_quota()->set_tensors(1);
  token_ = Open(small);
  ASSERT_FALSE(Put(1, std::vector<float>(10, 1)).has_error());
  // One number, and for a moment both its old bytes and its new ones.
  Succeed(PutInto(1, std::vector<float>(10, 2)));
  EXPECT_EQ(Read(1), std::vector<float>(10, 2));
  Succeed(Free(1));
  ASSERT_FALSE(Put(1, std::vector<float>(20, 1)).has_error());
  v1::Command write = PutInto(1, std::vector<float>(20, 2));
  write.mutable_tensor_put()->set_mode(v1::EVAL_MODE_SYNC_FULL);
  EXPECT_EQ(ReasonOf(Failing(write)), "SPACE_QUOTA");
}

// -- Allocated ----------------------------------------------------------------

TEST_F(TensorCommandsTest, AnAllocatedTensorIsWrittenCommittedAndRead) {
  const v1::CommandResult made = Succeed(Allocate(1, {2}));
  EXPECT_EQ(made.tensor_allocate().bytes(), 8u);
  EXPECT_EQ(Describe().held().tensor_bytes(), 8u);
  EXPECT_TRUE(DescribeTensor(1).uncommitted());
  EXPECT_FALSE(DescribeTensor(1).ready());
  EXPECT_THAT(DescribeTensor(1).spec().shape(), ElementsAre(2));
  const v1::Failure early = Get(1).error();
  EXPECT_EQ(early.code(), static_cast<int>(grpc::FAILED_PRECONDITION));
  EXPECT_EQ(ReasonOf(early), "TENSOR_NOT_COMMITTED");
  EXPECT_EQ(ReasonOf(Failing(Commit(1))), "TENSOR_NOT_WRITTEN");
  v1::Command wait;
  wait.mutable_wait()->add_tensors(1);
  EXPECT_EQ(ReasonOf(Failing(wait)), "TENSOR_NOT_WRITTEN");

  Succeed(PutInto(1, {1, 2}));
  Succeed(wait);
  EXPECT_EQ(Describe().held().tensor_bytes(), 8u);
  EXPECT_EQ(ReasonOf(Get(1).error()), "TENSOR_NOT_COMMITTED");
  EXPECT_EQ(Reason(FromGrpcStatus(Evaluate(Double(1, 2)).status)),
            "TENSOR_NOT_COMMITTED");
  EXPECT_EQ(ReasonOf(Failing(Copy(1, 2))), "TENSOR_NOT_COMMITTED");
  Succeed(Commit(1));
  EXPECT_EQ(Read(1), (std::vector<float>{1, 2}));
  EXPECT_FALSE(DescribeTensor(1).uncommitted());
  EXPECT_EQ(ReasonOf(Failing(Commit(1))), "TENSOR_COMMITTED");
  // It is as any other now.
  Succeed(PutInto(1, {3, 4}));
  EXPECT_EQ(Read(1), (std::vector<float>{3, 4}));
}

// What is committed while it is written is read when that is done.
TEST_F(TensorCommandsTest, ATensorIsCommittedBeforeItsWriterIsDone) {
  Succeed(Allocate(1, {1}));
  ASSERT_FALSE(Put(2, {3}).has_error());
  CreateTimeline(1);
  v1::EvaluateRequest write = DoubleInto(2, 1);
  After(1, 1, &write);
  ASSERT_TRUE(Evaluate(write).status.ok());
  Succeed(Commit(1));
  ASSERT_TRUE(Evaluate(Double(1, 3)).status.ok());
  ASSERT_FALSE(Signal(1, 1).has_error());
  EXPECT_EQ(Read(3), (std::vector<float>{12}));
}

TEST_F(TensorCommandsTest, BadAllocationsAreRefusedByName) {
  EXPECT_EQ(Failing(Allocate(0, {1})).code(), kInvalid);
  v1::Failure failure = Failing(Allocate(1, {-1}));
  EXPECT_EQ(failure.code(), kInvalid);
  EXPECT_EQ(failure.field(), "spec.shape");
  failure = Failing(Allocate(1, {1}, v1::DATA_TYPE_UNSPECIFIED));
  EXPECT_EQ(failure.code(), kInvalid);
  EXPECT_EQ(failure.field(), "spec.dtype");
  EXPECT_EQ(Failing(Allocate(1, {1}, v1::DATA_TYPE_STRING)).code(),
            static_cast<int>(grpc::UNIMPLEMENTED));
  EXPECT_EQ(Failing(Allocate(1, {int64_t{1} << 50})).code(), kInvalid);
  EXPECT_EQ(ReasonOf(Failing(Allocate(1, {int64_t{1} << 36}))), "SPACE_QUOTA");
  v1::Command nowhere = Allocate(1, {1});
  nowhere.mutable_tensor_allocate()->set_device("nowhere");
  EXPECT_EQ(Failing(nowhere).field(), "device");
  Succeed(Allocate(1, {1}));
  EXPECT_EQ(ReasonOf(Failing(Allocate(1, {1}))), "NUMBER_IN_USE");
  Succeed(Free(1));
  EXPECT_EQ(ReasonOf(Failing(Commit(1))), "TENSOR_NOT_FOUND");
  EXPECT_EQ(Describe().held().tensor_bytes(), 0u);
  EXPECT_EQ(Describe().held().tensors(), 0u);
  ASSERT_FALSE(Put(1, {1}).has_error());
  EXPECT_EQ(ReasonOf(Failing(Commit(1))), "TENSOR_COMMITTED");
}

// -- Copied and filled --------------------------------------------------------

TEST_F(TensorCommandsTest, ACopyIsATensorOfItsOwn) {
  ASSERT_FALSE(Put(1, {1, 2}).has_error());
  v1::Command copy = Copy(1, 2);
  copy.mutable_tensor_copy()->set_report(v1::REPORT_LEVEL_FULL);
  copy.mutable_tensor_copy()->set_mode(v1::EVAL_MODE_SYNC_FULL);
  const v1::EvaluateResponse copied = Succeed(copy).tensor_copy();
  EXPECT_EQ(copied.report().state(), v1::WORK_STATE_COMPLETED);
  EXPECT_EQ(copied.report().details().transfers().transport(),
            v1::Transfers::TRANSPORT_DEVICE);
  ASSERT_EQ(copied.outputs_size(), 1);
  EXPECT_EQ(copied.outputs(0).value().tensor(), 2u);
  Succeed(PutInto(1, {3, 4}));
  EXPECT_EQ(Read(2), (std::vector<float>{1, 2}));
  Succeed(Copy(1, 2, /*into=*/true));
  EXPECT_EQ(Read(2), (std::vector<float>{3, 4}));
  Succeed(Free(1));
  EXPECT_EQ(Read(2), (std::vector<float>{3, 4}));
  EXPECT_EQ(ReasonOf(Failing(Copy(1, 3))), "TENSOR_NOT_FOUND");
  EXPECT_EQ(Failing(Copy(1, 3)).field(), "source");
  EXPECT_EQ(ReasonOf(Failing(Copy(2, 2))), "NUMBER_IN_USE");
  EXPECT_EQ(Failing(Copy(2, 2)).field(), "tensor");
  EXPECT_EQ(ReasonOf(Failing(Copy(2, 3, /*into=*/true))), "TENSOR_NOT_FOUND");
  copy = Copy(2, 3);
  copy.mutable_tensor_copy()->set_device("nowhere");
  EXPECT_EQ(Failing(copy).field(), "device");
  copy = Copy(2, 3);
  copy.mutable_tensor_copy()->set_context(5);
  EXPECT_EQ(ReasonOf(Failing(copy)), "CONTEXT_NOT_FOUND");
}

// Two devices, whichever this machine has.
class TensorsOfTwoDevicesTest : public TensorCommandsTest {
 protected:
  TensorsOfTwoDevicesTest()
      : TensorCommandsTest([](ServerOptions& o) {
          o.devices = *ParseDeviceList("cuda:0,1");
          o.make_device = [](std::string_view which,
                             const DeviceOptions& options, OpRegistry&) {
            DeviceOptions cpu = options;
            cpu.cpu_ordinal = which.back() - '0';
            return MakeCpuDevice(cpu);
          };
        }) {}

  static v1::Command CopyTo(const std::string& device, uint64_t source,
                            uint64_t tensor) {
    v1::Command copy = Copy(source, tensor);
    copy.mutable_tensor_copy()->set_device(device);
    copy.mutable_tensor_copy()->set_report(v1::REPORT_LEVEL_FULL);
    copy.mutable_tensor_copy()->set_mode(v1::EVAL_MODE_SYNC_FULL);
    return copy;
  }
};

TEST_F(TensorsOfTwoDevicesTest, ACopyGoesToAnotherDeviceAndBack) {
  ASSERT_FALSE(Put(1, {1, 2}).has_error());
  v1::Command there = CopyTo("cpu:1", 1, 2);
  there.mutable_tensor_copy()->set_work(5);
  const v1::EvaluateResponse copied = Succeed(there).tensor_copy();
  EXPECT_EQ(copied.report().details().transfers().transport(),
            v1::Transfers::TRANSPORT_STAGED);
  EXPECT_EQ(copied.outputs(0).value().tensor(), 2u);
  EXPECT_EQ(Query(5).state(), v1::WORK_STATE_COMPLETED);
  EXPECT_NE(DescribeTensor(2).device_uuid(), DescribeTensor(1).device_uuid());
  // What is there is written into there, and read there.
  Succeed(Fill(2, Bytes<float>({7})));
  Succeed(PutInto(2, {8, 9}));
  ASSERT_TRUE(Evaluate(Double(2, 3)).status.ok());
  EXPECT_EQ(Read(3), (std::vector<float>{16, 18}));
  Succeed(Copy(3, 1, /*into=*/true));
  EXPECT_EQ(Read(1), (std::vector<float>{16, 18}));
  EXPECT_NE(DescribeTensor(1).device_uuid(), DescribeTensor(3).device_uuid());
  EXPECT_EQ(Reason(FromGrpcStatus(Evaluate(DoubleInto(1, 3)).status)),
            "WRONG_DEVICE");
}

TEST_F(TensorsOfTwoDevicesTest, ACopyThatFailsNamesItsOwnFields) {
  ASSERT_FALSE(Put(1, {1}).has_error());
  EXPECT_EQ(Failing(CopyTo("cpu:1", 9, 2)).field(), "source");
  EXPECT_EQ(ReasonOf(Failing(CopyTo("cpu:1", 1, 1))), "NUMBER_IN_USE");
  EXPECT_EQ(Failing(CopyTo("cpu:1", 1, 1)).field(), "tensor");
  Succeed(Allocate(3, {1}));
  EXPECT_EQ(ReasonOf(Failing(CopyTo("cpu:1", 3, 2))), "TENSOR_NOT_COMMITTED");
  EXPECT_EQ(Failing(CopyTo("cpu:1", 3, 2)).field(), "source");
}

TEST_F(TensorCommandsTest, AFillIsOneValueInAShape) {
  v1::Command fill = Fill(1, Bytes<float>({2.5}), /*into=*/false);
  v1::TensorSpec* const spec = fill.mutable_tensor_fill()->mutable_spec();
  spec->set_dtype(v1::DATA_TYPE_FLOAT);
  spec->add_shape(2);
  spec->add_shape(2);
  Succeed(fill);
  EXPECT_EQ(Read(1), std::vector<float>(4, 2.5));
  Succeed(Fill(1, Bytes<float>({7})));
  EXPECT_EQ(Read(1), std::vector<float>(4, 7));
  EXPECT_THAT(DescribeTensor(1).spec().shape(), ElementsAre(2, 2));
  Succeed(Fill(1, ""));
  EXPECT_EQ(Read(1), std::vector<float>(4, 0));
  // A scalar, and nothing.
  fill.mutable_tensor_fill()->set_tensor(2);
  spec->clear_shape();
  Succeed(fill);
  EXPECT_EQ(Read(2), std::vector<float>{2.5});
  fill.mutable_tensor_fill()->set_tensor(3);
  spec->add_shape(0);
  Succeed(fill);
  EXPECT_EQ(Read(3), std::vector<float>());
  // Into what was allocated.
  Succeed(Allocate(4, {3}));
  Succeed(Fill(4, Bytes<float>({1})));
  Succeed(Commit(4));
  EXPECT_EQ(Read(4), std::vector<float>(3, 1));
}

// What is filled has a shape from when it is accepted, and one that is written
// keeps its own: whoever goes on with either need not wait.
TEST_F(TensorCommandsTest, ShapesAreKnownBeforeFillsHaveRun) {
  v1::Command create;
  create.mutable_context_create()->set_context(1);
  Succeed(create);
  CreateTimeline(1);
  ASSERT_FALSE(Put(1, {1, 2}).has_error());
  v1::EvaluateRequest parked = DoubleInto(1, 1);
  parked.set_context(1);
  After(1, 1, &parked);
  ASSERT_TRUE(Evaluate(parked).status.ok());
  v1::Command fill = Fill(1, Bytes<float>({3}));
  fill.mutable_tensor_fill()->set_context(1);
  Succeed(fill);
  fill.mutable_tensor_fill()->set_tensor(2);
  fill.mutable_tensor_fill()->set_into_existing(false);
  fill.mutable_tensor_fill()->set_work(7);
  v1::TensorSpec* const spec = fill.mutable_tensor_fill()->mutable_spec();
  spec->set_dtype(v1::DATA_TYPE_FLOAT);
  spec->add_shape(2);
  spec->add_shape(1);
  Succeed(fill);
  EXPECT_FALSE(DescribeTensor(2).ready());
  EXPECT_THAT(DescribeTensor(1).spec().shape(), ElementsAre(2));
  EXPECT_THAT(DescribeTensor(2).spec().shape(), ElementsAre(2, 1));
  for (const uint64_t tensor : {1u, 2u}) {
    v1::EvaluateRequest doubled = Double(tensor, 10 + tensor);
    doubled.set_context(1);
    const EvaluateAnswer answer = Evaluate(doubled);
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  }
  ASSERT_FALSE(Signal(1, 1).has_error());
  EXPECT_EQ(Read(11), (std::vector<float>{6, 6}));
  EXPECT_EQ(Read(12), (std::vector<float>{6, 6}));
  EXPECT_EQ(Query(7).state(), v1::WORK_STATE_COMPLETED);
}

TEST_F(TensorCommandsTest, BadFillsAreRefusedByName) {
  v1::Command fill = Fill(1, "abc", /*into=*/false);
  EXPECT_EQ(Failing(fill).field(), "spec.dtype");
  v1::TensorSpec* const spec = fill.mutable_tensor_fill()->mutable_spec();
  spec->set_dtype(v1::DATA_TYPE_FLOAT);
  spec->add_shape(2);
  v1::Failure failure = Failing(fill);
  EXPECT_EQ(failure.code(), kInvalid);
  EXPECT_EQ(failure.field(), "value");
  spec->set_shape(0, -1);
  EXPECT_EQ(Failing(fill).field(), "spec.shape");
  EXPECT_EQ(ReasonOf(Failing(Fill(9, ""))), "TENSOR_NOT_FOUND");
  fill.mutable_tensor_fill()->set_value("");
  spec->set_shape(0, 2);
  ASSERT_FALSE(Put(1, {1}).has_error());
  EXPECT_EQ(ReasonOf(Failing(fill)), "NUMBER_IN_USE");
  EXPECT_EQ(Failing(fill).field(), "tensor");
  // Of another shape than the tensor, or of another rank: refused, before it
  // could be what the number stands for.
  fill.mutable_tensor_fill()->set_into_existing(true);
  EXPECT_EQ(ReasonOf(Failing(fill)), "TENSOR_MISMATCH");
  spec->add_shape(1);
  EXPECT_EQ(ReasonOf(Failing(fill)), "TENSOR_MISMATCH");
  EXPECT_EQ(Failing(fill).field(), "tensor");
  EXPECT_EQ(Read(1), std::vector<float>{1});
  while (spec->shape_size() < 9) spec->add_shape(1);
  EXPECT_EQ(Failing(fill).field(), "spec.shape");
}

}  // namespace
}  // namespace weir::testing
