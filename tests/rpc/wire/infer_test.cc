#include <gmock/gmock.h>
#include <grpcpp/support/byte_buffer.h>

#include <string>
#include <vector>

#include "kernels/base/error_info.h"
#include "proto/inference/grpc_service.pb.h"
#include "server/rpc/wire/infer_contents.h"
#include "server/rpc/wire/infer_request.h"
#include "server/rpc/wire/infer_response.h"
#include "server/rpc/wire/wire_fields.h"
#include "tests/bytes/sliced.h"
#include "tests/rpc/reply_bytes.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

inference::ModelInferRequest FullRequest() {
  inference::ModelInferRequest request;
  request.set_model_name("digits");
  request.set_model_version("3");
  request.set_id("call-1");
  (*request.mutable_parameters())["flag"].set_bool_param(true);
  auto* first = request.add_inputs();
  first->set_name("pixels");
  first->set_datatype("FP32");
  first->add_shape(2);
  first->add_shape(300);
  (*first->mutable_parameters())["text"].set_string_param("value");
  request.add_inputs()->set_name("other");
  auto* output = request.add_outputs();
  output->set_name("scores");
  (*output->mutable_parameters())["n"].set_int64_param(-5);
  request.add_raw_input_contents(std::string(2400, 'p'));
  request.add_raw_input_contents("");
  return request;
}

TEST(WireInferTest, ReadsWhatProtobufWrote) {
  const std::string bytes = FullRequest().SerializeAsString();
  for (size_t piece : {1u, 7u, 64u, 100000u}) {
    SCOPED_TRACE(piece);
    const Sliced sliced(bytes, piece);
    CallArena arena;
    InferRequest request;
    ASSERT_TRUE(ParseInferRequest(sliced.view(), &arena, &request).ok());
    EXPECT_EQ(request.model_name, "digits");
    EXPECT_EQ(request.model_version, "3");
    EXPECT_EQ(request.id, "call-1");
    ASSERT_EQ(request.parameters.size(), 1u);
    EXPECT_EQ(request.parameters[0].name, "flag");
    EXPECT_TRUE(std::get<bool>(request.parameters[0].value));
    ASSERT_EQ(request.inputs.size(), 2u);
    EXPECT_EQ(request.inputs[0].name, "pixels");
    EXPECT_EQ(request.inputs[0].datatype, "FP32");
    EXPECT_THAT(std::vector<int64_t>(request.inputs[0].shape.begin(),
                                     request.inputs[0].shape.end()),
                ElementsAre(2, 300));
    ASSERT_EQ(request.inputs[0].parameters.size(), 1u);
    EXPECT_EQ(request.inputs[0].parameters[0].name, "text");
    EXPECT_EQ(std::get<std::string_view>(request.inputs[0].parameters[0].value),
              "value");
    EXPECT_FALSE(request.inputs[0].contents.has_value());
    EXPECT_EQ(request.inputs[1].name, "other");
    ASSERT_EQ(request.outputs.size(), 1u);
    EXPECT_EQ(request.outputs[0].name, "scores");
    ASSERT_EQ(request.outputs[0].parameters.size(), 1u);
    EXPECT_EQ(request.outputs[0].parameters[0].name, "n");
    EXPECT_EQ(std::get<int64_t>(request.outputs[0].parameters[0].value), -5);
    ASSERT_EQ(request.raw_contents.size(), 2u);
    EXPECT_EQ(ToString(request.raw_contents[0]), std::string(2400, 'p'));
    EXPECT_TRUE(request.raw_contents[1].empty());
  }
}

TEST(WireInferTest, DoesNotCopyTensors) {
  const Sliced sliced(FullRequest().SerializeAsString(), 100000);
  CallArena arena;
  InferRequest request;
  ASSERT_TRUE(ParseInferRequest(sliced.view(), &arena, &request).ok());
  const BytePiece message = sliced.view().pieces()[0];
  const BytePiece tensor = request.raw_contents[0].pieces()[0];
  EXPECT_GE(tensor.data(), message.data());
  EXPECT_LE(tensor.data() + tensor.size(), message.data() + message.size());
}

TEST(WireInferTest, AnyCutIsAnErrorOrAShorterRequest) {
  const std::string bytes = FullRequest().SerializeAsString();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);
    const Sliced sliced(cut, 16);
    CallArena arena;
    InferRequest request;
    const absl::Status status =
        ParseInferRequest(sliced.view(), &arena, &request);
    inference::ModelInferRequest reference;
    EXPECT_EQ(status.ok(), reference.ParseFromString(cut)) << size;
  }
}

TEST(WireInferTest, BoundsWhatOneRequestMayHave) {
  CallArena arena;
  for (const std::string field : {"inputs", "outputs", "raw_input_contents"}) {
    inference::ModelInferRequest many;
    const auto parse = [&] {
      const Sliced sliced(many.SerializeAsString(), 100000);
      InferRequest request;
      return ParseInferRequest(sliced.view(), &arena, &request);
    };
    const auto add = [&] {
      if (field == "inputs") many.add_inputs();
      if (field == "outputs") many.add_outputs();
      if (field == "raw_input_contents") many.add_raw_input_contents();
    };
    for (size_t i = 0; i < kMaxWireTensors; ++i) add();
    EXPECT_TRUE(parse().ok()) << field;
    add();
    const absl::Status status = parse();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), field + " has more than 1024 entries");
    EXPECT_EQ(Field(status), field);
  }
  // What is too many, and of what, is told.
  for (const bool of_tensor : {false, true}) {
    inference::ModelInferRequest many;
    auto& parameters = of_tensor ? *many.add_inputs()->mutable_parameters()
                                 : *many.mutable_parameters();
    const size_t limit = of_tensor ? 64 : 1024;
    for (size_t i = 0; i <= limit; ++i) {
      parameters["p" + std::to_string(i)].set_bool_param(true);
    }
    const Sliced sliced(many.SerializeAsString(), 100000);
    InferRequest request;
    const absl::Status status =
        ParseInferRequest(sliced.view(), &arena, &request);
    const std::string field = of_tensor ? "inputs[0].parameters" : "parameters";
    EXPECT_EQ(Field(status), field);
    EXPECT_EQ(status.message(),
              field + " has more than " + std::to_string(limit) + " entries");
  }
  inference::ModelInferRequest deep;
  auto* input = deep.add_inputs();
  for (size_t i = 0; i <= kMaxWireRank; ++i) input->add_shape(1);
  const Sliced sliced(deep.SerializeAsString(), 100000);
  InferRequest request;
  EXPECT_EQ(ParseInferRequest(sliced.view(), &arena, &request).message(),
            "inputs[0].shape has more than 64 entries");
}

std::string Repeated(const std::string& field, size_t times) {
  std::string fields;
  for (size_t i = 0; i < times; ++i) fields += field;
  return fields;
}

absl::Status ParseFields(const std::string& fields) {
  const Sliced sliced(fields, 1 << 20);
  CallArena arena;
  InferRequest request;
  return ParseInferRequest(sliced.view(), &arena, &request);
}

TEST(WireInferTest, BoundsTheFieldsOfOneMessage) {
  constexpr size_t kMost = size_t{1} << 20;
  const std::string unknown = std::string("\x7a\x00", 2);
  const std::string name = std::string("\x0a\x00", 2);
  EXPECT_TRUE(ParseFields(Repeated(unknown, kMost)).ok());
  // Unknown fields of an input, and a field again and again.
  const std::string inner = Repeated(unknown, kMost);
  for (const std::string& fields :
       {Repeated(unknown, kMost + 1), Repeated(name, kMost + 1),
        std::string("\x2a\x80\x80\x80\x01", 5) + inner}) {
    const absl::Status status = ParseFields(fields);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(Reason(status), "TOO_MANY_FIELDS");
    EXPECT_THAT(Metadata(status), ElementsAre(Pair("limit", "1048576")));
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("ModelInferRequest has more than 1048576 fields"));
  }
}

TEST(WireInferTest, AnIdIsAsLongAsAName) {
  for (const size_t size : {1024u, 1025u}) {
    inference::ModelInferRequest request;
    request.set_id(std::string(size, 'i'));
    const absl::Status status = ParseFields(request.SerializeAsString());
    EXPECT_EQ(status.ok(), size == 1024) << status;
    if (status.ok()) continue;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("id has 1025 bytes; it may have 1024"));
  }
}

// Protobuf would merge them; whose bytes were meant, nobody can say.
TEST(WireInferTest, AnInputHasOneContents) {
  const std::string name("\x0a\x01x", 3);
  const std::string contents("\x2a\0", 2);
  for (const int times : {1, 2}) {
    std::string input = name;
    for (int i = 0; i < times; ++i) input += contents;
    const absl::Status status = ParseFields(
        "\x2a" + std::string(1, static_cast<char>(input.size())) + input);
    EXPECT_EQ(status.ok(), times == 1) << status;
    if (status.ok()) continue;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("an input has contents twice"));
  }
}

TEST(WireInferTest, AStringParameterIsBounded) {
  for (const size_t size : {1024u, 1025u}) {
    inference::ModelInferRequest request;
    (*request.mutable_parameters())["p"].set_string_param(
        std::string(size, 's'));
    const absl::Status status = ParseFields(request.SerializeAsString());
    EXPECT_EQ(status.ok(), size == 1024) << status;
    if (status.ok()) continue;
    EXPECT_EQ(Field(status), "parameters[0].value.string_param");
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("has 1025 bytes; it may have 1024"));
  }
}

// Elements that are fields of their own are no more than the shape has; of
// other fields, and of packed ones that hold none, there is a bound.
TEST(WireInferTest, BoundsTheFieldsOfContentsBesideTheirElements) {
  constexpr size_t kMost = size_t{1} << 20;
  const auto decode = [](const std::string& fields, size_t count) {
    const Sliced sliced(fields, 1 << 20);
    CallArena arena;
    std::vector<int32_t> out(count);
    return DecodeContents(sliced.view(), DType::kInt32, count, &arena,
                          reinterpret_cast<std::byte*>(out.data()));
  };
  const std::string element = std::string("\x10\x07", 2);
  const std::string empty = std::string("\x12\x00", 2);
  EXPECT_TRUE(decode(Repeated(element, kMost + 10), kMost + 10).ok());
  EXPECT_TRUE(decode(Repeated(empty, kMost), 0).ok());
  const absl::Status status = decode(Repeated(empty, kMost + 1), 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("InferTensorContents"));
}

// Decodes `contents` as out->size() elements of `dtype`.
template <typename T>
absl::Status Decode(const inference::InferTensorContents& contents, DType dtype,
                    std::vector<T>* out) {
  const Sliced sliced(contents.SerializeAsString(), 3);
  CallArena arena;
  return DecodeContents(sliced.view(), dtype, out->size(), &arena,
                        reinterpret_cast<std::byte*>(out->data()));
}

TEST(WireInferTest, DecodesTypedContents) {
  inference::InferTensorContents contents;
  contents.add_bool_contents(true);
  contents.add_bool_contents(false);
  std::vector<uint8_t> bools(2);
  EXPECT_TRUE(Decode(contents, DType::kBool, &bools).ok());
  EXPECT_THAT(bools, ElementsAre(1, 0));

  contents.Clear();
  contents.add_int_contents(-128);
  contents.add_int_contents(127);
  std::vector<int8_t> int8s(2);
  EXPECT_TRUE(Decode(contents, DType::kInt8, &int8s).ok());
  EXPECT_THAT(int8s, ElementsAre(-128, 127));
  std::vector<int32_t> int32s(2);
  EXPECT_TRUE(Decode(contents, DType::kInt32, &int32s).ok());
  EXPECT_THAT(int32s, ElementsAre(-128, 127));

  contents.Clear();
  contents.add_uint_contents(65535);
  std::vector<uint16_t> uint16s(1);
  EXPECT_TRUE(Decode(contents, DType::kUint16, &uint16s).ok());
  EXPECT_THAT(uint16s, ElementsAre(65535));

  contents.Clear();
  contents.add_int64_contents(-1);
  std::vector<int64_t> int64s(1);
  EXPECT_TRUE(Decode(contents, DType::kInt64, &int64s).ok());
  EXPECT_THAT(int64s, ElementsAre(-1));

  contents.Clear();
  contents.add_uint64_contents(UINT64_MAX);
  std::vector<uint64_t> uint64s(1);
  EXPECT_TRUE(Decode(contents, DType::kUint64, &uint64s).ok());
  EXPECT_THAT(uint64s, ElementsAre(UINT64_MAX));

  contents.Clear();
  contents.add_fp32_contents(1.5f);
  contents.add_fp32_contents(-2.5f);
  std::vector<float> floats(2);
  EXPECT_TRUE(Decode(contents, DType::kFloat, &floats).ok());
  EXPECT_THAT(floats, ElementsAre(1.5f, -2.5f));

  contents.Clear();
  contents.add_fp64_contents(0.25);
  std::vector<double> doubles(1);
  EXPECT_TRUE(Decode(contents, DType::kDouble, &doubles).ok());
  EXPECT_THAT(doubles, ElementsAre(0.25));

  contents.Clear();
  contents.add_bytes_contents("first");
  contents.add_bytes_contents("");
  const Sliced sliced(contents.SerializeAsString(), 3);
  CallArena arena;
  std::vector<StringRef> strings(2);
  EXPECT_TRUE(DecodeContents(sliced.view(), DType::kString, strings.size(),
                             &arena,
                             reinterpret_cast<std::byte*>(strings.data()))
                  .ok());
  EXPECT_EQ(std::string_view(strings[0]), "first");
  EXPECT_EQ(strings[1].size, 0u);
}

TEST(WireInferTest, RefusesTypedContentsThatDoNotFit) {
  inference::InferTensorContents contents;
  contents.add_int_contents(128);
  std::vector<int8_t> one(1);
  EXPECT_THAT(std::string(Decode(contents, DType::kInt8, &one).message()),
              HasSubstr("range"));
  std::vector<int32_t> two(2);
  EXPECT_THAT(std::string(Decode(contents, DType::kInt32, &two).message()),
              HasSubstr("1 elements, the shape 2"));
  std::vector<int32_t> none;
  EXPECT_FALSE(Decode(contents, DType::kInt32, &none).ok());
  std::vector<float> other(1);
  EXPECT_THAT(std::string(Decode(contents, DType::kFloat, &other).message()),
              HasSubstr("FP32 elements belong in contents.fp32_contents"));
  std::vector<uint16_t> half(1);
  EXPECT_THAT(std::string(Decode(contents, DType::kFloat16, &half).message()),
              HasSubstr("raw_input_contents"));
}

TEST(WireInferTest, ProtobufReadsWhatTheBuilderWrote) {
  const std::string small(100, 's');
  const std::string large(5000, 'l');
  int released = 0;
  const auto release = [](void* count) { ++*static_cast<int*>(count); };
  const int64_t shape[] = {10, 500};
  const std::vector<InferOutput> outputs = {
      {"a",
       "INT8",
       {},
       ForeignBytes{small.data(), small.size(), release, &released}},
      {"b", "BYTES", shape,
       ForeignBytes{large.data(), large.size(), release, &released}},
      {"in-region", "FP32", shape, std::nullopt},
      {"c", "INT8", shape,
       ForeignBytes{large.data(), large.size(), release, &released}},
      {"d", "INT8", {}, ForeignBytes{"", 0, release, &released}},
  };
  const std::vector<InferParameter> parameters = {
      {"b", true},
      {"i", int64_t{-1}},
      {"s", std::string_view("text")},
      {"d", 0.5},
      {"u", uint64_t{7}}};
  InferReply reply;
  reply.model_name = "m";
  reply.model_version = "1";
  reply.id = "x";
  reply.parameters = parameters;
  reply.outputs = outputs;
  {
    ReplyBuffer buffer = BuildInferReply(reply);
    EXPECT_EQ(released, 2);  // The small ones were copied.
    EXPECT_EQ(buffer.slice_count(), 5u);
    inference::ModelInferResponse response;
    ASSERT_TRUE(response.ParseFromString(ReplyBytes(buffer)));
    EXPECT_EQ(response.model_name(), "m");
    EXPECT_EQ(response.model_version(), "1");
    EXPECT_EQ(response.id(), "x");
    EXPECT_TRUE(response.parameters().at("b").bool_param());
    EXPECT_EQ(response.parameters().at("i").int64_param(), -1);
    EXPECT_EQ(response.parameters().at("s").string_param(), "text");
    EXPECT_EQ(response.parameters().at("d").double_param(), 0.5);
    EXPECT_EQ(response.parameters().at("u").uint64_param(), 7u);
    ASSERT_EQ(response.outputs_size(), 5);
    EXPECT_EQ(response.outputs(1).name(), "b");
    EXPECT_EQ(response.outputs(1).datatype(), "BYTES");
    EXPECT_THAT(response.outputs(1).shape(), ElementsAre(10, 500));
    EXPECT_THAT(response.raw_output_contents(),
                ElementsAre(small, large, large, ""));
  }
  EXPECT_EQ(released, 4);
}

TEST(WireInferTest, AnEmptyReplyIsEmpty) {
  ReplyBuffer buffer = BuildInferReply(InferReply());
  EXPECT_EQ(buffer.size(), 0u);
}

}  // namespace
}  // namespace weir
