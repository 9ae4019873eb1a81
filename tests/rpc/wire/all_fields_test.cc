// The messages that we read and write by hand, against the classes that protoc
// makes: every field that a .proto declares is filled, parsed and rebuilt, so
// that one which is forgotten, or read under another number, shows by name. And
// against bytes that are committed, so that both cannot change together.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>

#include <cstdlib>
#include <deque>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "proto/inference/grpc_service.pb.h"
#include "proto/weir/v1/catalog.pb.h"
#include "proto/weir/v1/evaluator.pb.h"
#include "server/rpc/wire/evaluate_response.h"
#include "server/rpc/wire/infer_response.h"
#include "tests/bytes/sliced.h"
#include "tests/rpc/reply_bytes.h"
#include "tests/rpc/wire/rebuilt.h"

namespace weir {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// The largest oneof has seven members (Attribute.value).
constexpr int kChoices = 7;

// Gives every field a value of its own. Of a oneof, the member `choice` (modulo
// their number).
class Filler {
 public:
  explicit Filler(int choice) : choice_(choice) {}

  void Fill(Message* message) {
    const Descriptor& type = *message->GetDescriptor();
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor* field = type.field(i);
      const auto* oneof = field->real_containing_oneof();
      if (oneof != nullptr &&
          field->index_in_oneof() != choice_ % oneof->field_count()) {
        continue;
      }
      const int count = field->is_repeated() ? 2 : 1;
      for (int n = 0; n < count; ++n) Set(message, field);
    }
  }

 private:
  // Sets or adds.
  void Set(Message* message, const FieldDescriptor* field) {
    const Reflection& to = *message->GetReflection();
    const bool add = field->is_repeated();
    const int n = ++next_;
#define WEIR_SET(Type, value)                \
  (add ? to.Add##Type(message, field, value) \
       : to.Set##Type(message, field, value))
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return WEIR_SET(Int32, -n);
      case FieldDescriptor::CPPTYPE_INT64:
        return WEIR_SET(Int64, -(int64_t{n} << 40));
      case FieldDescriptor::CPPTYPE_UINT32:
        return WEIR_SET(UInt32, static_cast<uint32_t>(n) << 20);
      case FieldDescriptor::CPPTYPE_UINT64:
        return WEIR_SET(UInt64, static_cast<uint64_t>(n) << 50);
      case FieldDescriptor::CPPTYPE_FLOAT:
        return WEIR_SET(Float, static_cast<float>(n) + .5f);
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return WEIR_SET(Double, n + .25);
      case FieldDescriptor::CPPTYPE_BOOL:
        return WEIR_SET(Bool, true);
      case FieldDescriptor::CPPTYPE_STRING:
        return WEIR_SET(String, absl::StrCat(field->name(), n));
      case FieldDescriptor::CPPTYPE_ENUM: {
        const auto* last =
            field->enum_type()->value(field->enum_type()->value_count() - 1);
        return WEIR_SET(Enum, last);
      }
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Fill(add ? to.AddMessage(message, field)
                        : to.MutableMessage(message, field));
    }
#undef WEIR_SET
  }

  const int choice_;
  int next_ = 0;
};

template <typename M>
M Filled(int choice) {
  M message;
  Filler(choice).Fill(&message);
  return message;
}

::testing::AssertionResult Same(const Message& expected, const Message& got) {
  std::string differences;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&differences);
  if (differencer.Compare(expected, got)) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << differences;
}

// What our parser makes of `bytes`, cut in several ways.
template <typename View, typename M>
void ExpectRead(absl::Status (*parse)(const ByteView&, CallArena*, View*),
                const std::string& bytes, const M& expected) {
  for (size_t piece : {size_t{1}, size_t{7}, bytes.size()}) {
    const Sliced sliced(bytes, piece);
    CallArena arena;
    View view;
    const absl::Status status = parse(sliced.view(), &arena, &view);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(Same(expected, Rebuilt(view))) << "in pieces of " << piece;
  }
}

// -- What is to be written, out of a message.

// Owns what a reply refers to.
class Replies {
 public:
  ReplyBuffer Write(const v1::EvaluateResponse& from) {
    std::vector<EvaluateOutput> outputs;
    for (const v1::NamedTensor& output : from.outputs()) {
      const v1::TensorSpec& spec = output.value().spec();
      EvaluateOutput to;
      to.name = output.name();
      to.spec.dtype = spec.dtype();
      to.spec.shape = Own(spec.shape());
      to.spec.layout = spec.layout();
      auto& samples = samples_.emplace_back();
      for (const v1::SampleShape& sample : spec.sample_shapes()) {
        samples.push_back(Own(sample.dims()));
      }
      to.spec.sample_shapes = samples;
      if (output.value().has_raw()) to.value = Foreign(output.value().raw());
      if (output.value().has_tensor()) {
        to.value = WireTensorNumber{output.value().tensor()};
      }
      outputs.push_back(to);
    }
    const std::string settings = from.settings().SerializeAsString();
    const std::string report = from.report().SerializeAsString();
    return BuildEvaluateReply({.work = from.work(),
                               .outputs = outputs,
                               .settings = settings,
                               .report = report});
  }

  ReplyBuffer Write(const inference::ModelInferResponse& from) {
    std::vector<InferParameter> parameters;
    for (const auto& [name, value] : from.parameters()) {
      parameters.push_back({name, ValueOf(value)});
    }
    std::vector<InferOutput> outputs;
    for (int i = 0; i < from.outputs_size(); ++i) {
      outputs.push_back({from.outputs(i).name(), from.outputs(i).datatype(),
                         Own(from.outputs(i).shape()),
                         Foreign(from.raw_output_contents(i))});
    }
    return BuildInferReply({from.model_name(), from.model_version(), from.id(),
                            parameters, outputs});
  }

 private:
  template <typename Repeated>
  std::span<const int64_t> Own(const Repeated& values) {
    return numbers_.emplace_back(values.begin(), values.end());
  }

  static ForeignBytes Foreign(const std::string& bytes) {
    return {bytes.data(), bytes.size(), [](void*) {}, nullptr};
  }

  static decltype(InferParameter::value) ValueOf(
      const inference::InferParameter& from) {
    switch (from.parameter_choice_case()) {
      case inference::InferParameter::kBoolParam:
        return from.bool_param();
      case inference::InferParameter::kInt64Param:
        return from.int64_param();
      case inference::InferParameter::kStringParam:
        return std::string_view(from.string_param());
      case inference::InferParameter::kDoubleParam:
        return from.double_param();
      case inference::InferParameter::kUint64Param:
        return from.uint64_param();
      case inference::InferParameter::PARAMETER_CHOICE_NOT_SET:
        break;
    }
    return std::monostate();
  }

  std::deque<std::vector<int64_t>> numbers_;
  std::deque<std::vector<std::span<const int64_t>>> samples_;
};

template <typename M>
void ExpectWritten(const M& expected) {
  Replies replies;
  ReplyBuffer buffer = replies.Write(expected);
  M read;
  ASSERT_TRUE(read.ParseFromString(ReplyBytes(buffer)));
  EXPECT_TRUE(Same(expected, read));
}

// Without what a reply of ours never has.
v1::EvaluateResponse WithoutUnsent(v1::EvaluateResponse response) {
  for (auto& output : *response.mutable_outputs()) {
    output.mutable_value()->clear_region();  // the caller knows where
  }
  return response;
}

inference::ModelInferResponse WithoutUnsent(
    inference::ModelInferResponse response) {
  for (auto& output : *response.mutable_outputs()) {
    output.clear_parameters();
    output.clear_contents();  // elements are sent raw
  }
  return response;
}

class AllFields : public ::testing::TestWithParam<int> {};

TEST_P(AllFields, OfAnEvaluateRequestAreRead) {
  const auto request = Filled<v1::EvaluateRequest>(GetParam());
  ExpectRead(&ParseEvaluateRequest, request.SerializeAsString(), request);
}

TEST_P(AllFields, OfARunRequestAreRead) {
  const auto request = Filled<v1::RunRequest>(GetParam());
  ExpectRead(&ParseRunRequest, request.SerializeAsString(), request);
}

TEST_P(AllFields, OfASessionRequestAreRead) {
  const auto request = Filled<v1::SessionRequest>(GetParam());
  ExpectRead(&ParseSessionRequest, request.SerializeAsString(), request);
}

TEST_P(AllFields, OfATensorPutAreRead) {
  const auto put = Filled<v1::TensorPut>(GetParam());
  ExpectRead(&ParseTensorPut, put.SerializeAsString(), put);
}

TEST_P(AllFields, OfAnExplainRequestAreRead) {
  const auto request = Filled<v1::ExplainRequest>(GetParam());
  ExpectRead(&ParseExplainRequest, request.SerializeAsString(), request);
}

TEST_P(AllFields, OfAModelInferRequestAreRead) {
  const auto request = Filled<inference::ModelInferRequest>(GetParam());
  ExpectRead(&ParseInferRequest, request.SerializeAsString(), request);
}

TEST_P(AllFields, OfAnEvaluateResponseAreWritten) {
  ExpectWritten(WithoutUnsent(Filled<v1::EvaluateResponse>(GetParam())));
}

TEST_P(AllFields, OfAModelInferResponseAreWritten) {
  ExpectWritten(
      WithoutUnsent(Filled<inference::ModelInferResponse>(GetParam())));
}

INSTANTIATE_TEST_SUITE_P(Oneofs, AllFields, ::testing::Range(0, kChoices));

// -- Bytes of another day: tests/rpc/wire/golden/NAME.hex is what protoc wrote
// for NAME.textproto when both were committed, by
//   protoc -Iproto --encode=TYPE FILE.proto < NAME.textproto | xxd -p

std::string ReadGolden(const std::string& name) {
  const char* folder = std::getenv("WEIR_TEST_DATA");
  const std::string path = absl::StrCat(folder == nullptr ? "tests" : folder,
                                        "/rpc/wire/golden/", name);
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_FALSE(text.str().empty()) << path;
  return text.str();
}

template <typename M>
std::pair<std::string, M> Golden(const std::string& name) {
  M message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      ReadGolden(name + ".textproto"), &message));
  std::string bytes = absl::HexStringToBytes(
      absl::StrReplaceAll(ReadGolden(name + ".hex"), {{"\n", ""}}));
  M read;
  EXPECT_TRUE(read.ParseFromString(bytes));
  EXPECT_TRUE(Same(message, read)) << "by protobuf";
  return {bytes, message};
}

TEST(GoldenBytes, OfRequestsAreRead) {
  const auto [evaluate, evaluate_message] =
      Golden<v1::EvaluateRequest>("evaluate_request");
  ExpectRead(&ParseEvaluateRequest, evaluate, evaluate_message);
  const auto [explain, explain_message] =
      Golden<v1::ExplainRequest>("explain_request");
  ExpectRead(&ParseExplainRequest, explain, explain_message);
  const auto [infer, infer_message] =
      Golden<inference::ModelInferRequest>("infer_request");
  ExpectRead(&ParseInferRequest, infer, infer_message);
}

TEST(GoldenBytes, OfResponsesAreWritten) {
  ExpectWritten(Golden<v1::EvaluateResponse>("evaluate_response").second);
  ExpectWritten(Golden<inference::ModelInferResponse>("infer_response").second);
}

}  // namespace
}  // namespace weir
