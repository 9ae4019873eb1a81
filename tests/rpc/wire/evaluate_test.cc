#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "kernels/base/error_info.h"
#include "proto/weir/v1/catalog.pb.h"
#include "proto/weir/v1/evaluator.pb.h"
#include "server/rpc/wire/evaluate_request.h"
#include "server/rpc/wire/evaluate_response.h"
#include "server/rpc/wire/explain_request.h"
#include "server/rpc/wire/wire_fields.h"
#include "tests/bytes/sliced.h"
#include "tests/rpc/reply_bytes.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::EvaluateRequest FullRequest() {
  v1::EvaluateRequest request;
  auto* node = request.mutable_graph()->mutable_definition()->add_nodes();
  node->set_op("Identity");
  auto* raw = request.add_inputs();
  raw->set_name("x");
  raw->mutable_value()->mutable_spec()->set_dtype(v1::DATA_TYPE_UINT8);
  raw->mutable_value()->mutable_spec()->add_shape(480);
  raw->mutable_value()->mutable_spec()->add_shape(-1);
  raw->mutable_value()->mutable_spec()->set_layout("HW");
  auto* samples = raw->mutable_value()->mutable_spec();
  samples->add_sample_shapes()->add_dims(4);
  samples->add_sample_shapes();
  raw->mutable_value()->set_raw(std::string(999, 'r'));
  auto* kept = request.add_inputs();
  kept->set_name("y");
  kept->mutable_value()->set_tensor(77);
  auto* shared = request.add_inputs();
  shared->set_name("z");
  auto* region = shared->mutable_value()->mutable_region();
  region->set_region("r1");
  region->set_offset(4096);
  region->set_byte_size(1 << 20);
  region->add_strides(-8);
  request.add_outputs()->set_name("inline");
  auto* keep = request.add_outputs();
  keep->set_name("kept");
  keep->set_tensor(78);
  auto* into = request.add_outputs();
  into->mutable_region()->set_region("r2");
  request.set_mode(v1::EVAL_MODE_SYNC_FULL);
  request.set_context(5);
  request.set_device("cuda:0");
  request.mutable_stream_policy()->set_kind(v1::StreamPolicy::KIND_NAMED);
  request.mutable_stream_policy()->set_stream(9);
  request.mutable_stream_policy()->set_priority(-1);
  auto* after = request.add_after();
  after->set_timeline(1);
  after->set_value(2);
  auto* signal = request.add_signal();
  signal->set_timeline(3);
  signal->set_value(4);
  request.set_rng_seed(0);
  request.set_label("a label");
  request.set_precision(v1::PRECISION_TF32);
  request.set_report(v1::REPORT_LEVEL_FULL);
  request.set_report_settings(true);
  request.set_on_conflict(v1::CONTEXT_CONFLICT_QUEUE);
  return request;
}

TEST(WireEvaluateTest, ReadsWhatProtobufWrote) {
  const std::string bytes = FullRequest().SerializeAsString();
  for (size_t piece : {1u, 13u, 100000u}) {
    SCOPED_TRACE(piece);
    const Sliced sliced(bytes, piece);
    CallArena arena;
    EvaluateRequestView request;
    ASSERT_TRUE(ParseEvaluateRequest(sliced.view(), &arena, &request).ok());
    v1::GraphDefinition definition;
    ASSERT_TRUE(definition.ParseFromString(
        ToString(std::get<WireGraphDefinition>(request.graph).bytes)));
    EXPECT_EQ(definition.nodes(0).op(), "Identity");

    ASSERT_EQ(request.inputs.size(), 3u);
    const WireTensor& x = request.inputs[0];
    EXPECT_EQ(x.name, "x");
    EXPECT_EQ(x.spec.dtype, 2);
    EXPECT_THAT(std::vector<int64_t>(x.spec.shape.begin(), x.spec.shape.end()),
                ElementsAre(480, -1));
    EXPECT_EQ(x.spec.layout, "HW");
    ASSERT_EQ(x.spec.sample_shapes.size(), 2u);
    EXPECT_EQ(x.spec.sample_shapes[0][0], 4);
    EXPECT_EQ(ToString(std::get<ByteView>(x.source)), std::string(999, 'r'));
    EXPECT_EQ(std::get<WireTensorNumber>(request.inputs[1].source).number, 77u);
    const auto& region = std::get<WireRegion>(request.inputs[2].source);
    EXPECT_EQ(region.region, "r1");
    EXPECT_EQ(region.offset, 4096u);
    EXPECT_EQ(region.byte_size, 1u << 20);
    EXPECT_EQ(region.strides[0], -8);

    ASSERT_EQ(request.outputs.size(), 3u);
    EXPECT_EQ(request.outputs[0].name, "inline");
    EXPECT_EQ(request.outputs[0].destination.index(), 0u);
    EXPECT_EQ(std::get<WireTensorNumber>(request.outputs[1].destination).number,
              78u);
    EXPECT_EQ(std::get<WireRegion>(request.outputs[2].destination).region,
              "r2");

    EXPECT_EQ(request.mode, v1::EVAL_MODE_SYNC_FULL);
    EXPECT_EQ(request.context, 5u);
    EXPECT_EQ(request.device, "cuda:0");
    EXPECT_EQ(request.stream_policy.kind, v1::StreamPolicy::KIND_NAMED);
    EXPECT_EQ(request.stream_policy.stream, 9u);
    EXPECT_EQ(request.stream_policy.priority, -1);
    EXPECT_EQ(request.after[0].timeline, 1u);
    EXPECT_EQ(request.after[0].value, 2u);
    EXPECT_EQ(request.signal[0].timeline, 3u);
    EXPECT_EQ(request.rng_seed, 0u);
    EXPECT_EQ(request.label, "a label");
    EXPECT_EQ(request.precision, v1::PRECISION_TF32);
    EXPECT_EQ(request.report, v1::REPORT_LEVEL_FULL);
    EXPECT_TRUE(request.report_settings);
    EXPECT_EQ(request.on_conflict, v1::CONTEXT_CONFLICT_QUEUE);
  }
}

TEST(WireEvaluateTest, ReadsTheOtherGraphSources) {
  CallArena arena;
  v1::EvaluateRequest wire;
  wire.mutable_graph()->set_onnx_model("model bytes");
  const Sliced onnx(wire.SerializeAsString(), 4);
  EvaluateRequestView request;
  ASSERT_TRUE(ParseEvaluateRequest(onnx.view(), &arena, &request).ok());
  EXPECT_EQ(ToString(std::get<WireOnnxModel>(request.graph).bytes),
            "model bytes");

  wire.mutable_graph()->mutable_model()->set_name("digits");
  wire.mutable_graph()->mutable_model()->set_version(2);
  const Sliced model(wire.SerializeAsString(), 4);
  request = EvaluateRequestView();
  ASSERT_TRUE(ParseEvaluateRequest(model.view(), &arena, &request).ok());
  EXPECT_EQ(std::get<WireModelReference>(request.graph).name, "digits");
  EXPECT_EQ(std::get<WireModelReference>(request.graph).version, 2);
  EXPECT_EQ(std::get<WireModelReference>(request.graph).version_label, "");

  wire.mutable_graph()->mutable_model()->set_version_label("stable");
  const Sliced label(wire.SerializeAsString(), 4);
  request = EvaluateRequestView();
  ASSERT_TRUE(ParseEvaluateRequest(label.view(), &arena, &request).ok());
  EXPECT_EQ(std::get<WireModelReference>(request.graph).version, 0);
  EXPECT_EQ(std::get<WireModelReference>(request.graph).version_label,
            "stable");
}

TEST(WireEvaluateTest, RefusesWhatWouldBeMerged) {
  CallArena arena;
  v1::EvaluateRequest wire;
  wire.mutable_graph()->set_onnx_model("one");
  const std::string once = wire.SerializeAsString();
  const Sliced twice(once + once, 100);
  EvaluateRequestView request;
  EXPECT_THAT(
      std::string(
          ParseEvaluateRequest(twice.view(), &arena, &request).message()),
      HasSubstr("two graphs"));
  // inputs { value {} value {} }
  const Sliced values(std::string("\x12\x04\x12\0\x12\0", 6), 100);
  request = EvaluateRequestView();
  EXPECT_THAT(
      std::string(
          ParseEvaluateRequest(values.view(), &arena, &request).message()),
      HasSubstr("two values"));
  // inputs { value { region {} region {} } }
  const Sliced regions(std::string("\x12\x06\x12\x04\"\0\"\0", 8), 100);
  request = EvaluateRequestView();
  EXPECT_THAT(
      std::string(
          ParseEvaluateRequest(regions.view(), &arena, &request).message()),
      HasSubstr("two regions"));
  // outputs { region {} region {} }
  const Sliced outputs(std::string("\x1a\x04\x1a\0\x1a\0", 6), 100);
  request = EvaluateRequestView();
  EXPECT_THAT(
      std::string(
          ParseEvaluateRequest(outputs.view(), &arena, &request).message()),
      HasSubstr("two regions"));
  // inputs { value { spec {} spec {} } }
  const Sliced value_specs(std::string("\x12\x06\x12\x04\x0a\0\x0a\0", 8), 100);
  request = EvaluateRequestView();
  EXPECT_THAT(
      std::string(
          ParseEvaluateRequest(value_specs.view(), &arena, &request).message()),
      HasSubstr("two specs"));
  // inputs { spec {} spec {} }
  const Sliced specs(std::string("\x12\x04\x12\0\x12\0", 6), 100);
  ExplainRequestView explain;
  EXPECT_THAT(
      std::string(
          ParseExplainRequest(specs.view(), &arena, &explain).message()),
      HasSubstr("two specs"));
}

// Protobuf would take the last, or merge two of one kind.
TEST(WireEvaluateTest, AGraphHasOneSource) {
  const std::string sources[] = {
      std::string("\x0a\0", 2),  // definition {}
      std::string("\x12\0", 2),  // onnx_model: ""
      std::string("\x1a\0", 2),  // model {}
  };
  for (const std::string& first : sources) {
    for (const std::string& second :
         {std::string(), sources[0], sources[1], sources[2]}) {
      const std::string graph = first + second;
      const Sliced sliced(
          "\x0a" + std::string(1, static_cast<char>(graph.size())) + graph,
          100);
      CallArena arena;
      EvaluateRequestView evaluate;
      ExplainRequestView explain;
      for (const absl::Status& status :
           {ParseEvaluateRequest(sliced.view(), &arena, &evaluate),
            ParseExplainRequest(sliced.view(), &arena, &explain)}) {
        EXPECT_EQ(status.ok(), second.empty()) << status;
        if (status.ok()) continue;
        EXPECT_THAT(std::string(status.message()),
                    HasSubstr("a graph has more than one source"));
      }
    }
  }
}

TEST(WireEvaluateTest, NamesTheFieldAtFault) {
  const auto status_of = [](const v1::EvaluateRequest& wire) {
    std::string bytes = wire.SerializeAsString();
    const size_t at = bytes.find("NAME");
    if (at != std::string::npos) bytes.replace(at, 4, "\xff\xfe\xff\xfe");
    const Sliced sliced(bytes, 100);
    CallArena arena;
    EvaluateRequestView request;
    return ParseEvaluateRequest(sliced.view(), &arena, &request);
  };
  const auto expect_not_utf8 = [&](const v1::EvaluateRequest& wire,
                                   const std::string& field) {
    const absl::Status status = status_of(wire);
    EXPECT_EQ(status.message(),
              field + " is not UTF-8: \"\\xff\\xfe\\xff\\xfe\"");
    EXPECT_EQ(Field(status), field);
  };
  v1::EvaluateRequest wire;
  wire.add_inputs();
  wire.add_inputs()->set_name("NAME");
  expect_not_utf8(wire, "inputs[1].name");
  wire = v1::EvaluateRequest();
  wire.add_inputs()->mutable_value()->mutable_spec()->set_layout("NAME");
  expect_not_utf8(wire, "inputs[0].value.spec.layout");
  wire = v1::EvaluateRequest();
  wire.add_outputs()->mutable_region()->set_region("NAME");
  expect_not_utf8(wire, "outputs[0].region.region");
  wire = v1::EvaluateRequest();
  wire.mutable_graph()->mutable_model()->set_name("NAME");
  expect_not_utf8(wire, "graph.model.name");
  wire = v1::EvaluateRequest();
  wire.set_label("NAME");
  expect_not_utf8(wire, "label");

  wire = v1::EvaluateRequest();
  v1::TensorSpec* spec = wire.add_inputs()->mutable_value()->mutable_spec();
  spec->add_sample_shapes();
  v1::SampleShape* second = spec->add_sample_shapes();
  for (size_t i = 0; i <= kMaxWireRank; ++i) second->add_dims(1);
  EXPECT_EQ(Field(status_of(wire)),
            "inputs[0].value.spec.sample_shapes[1].dims");
}

absl::Status Parse(const v1::EvaluateRequest& request) {
  const Sliced sliced(request.SerializeAsString(), 1 << 20);
  CallArena arena;
  EvaluateRequestView view;
  return ParseEvaluateRequest(sliced.view(), &arena, &view);
}

absl::Status Parse(const v1::ExplainRequest& request) {
  const Sliced sliced(request.SerializeAsString(), 1 << 20);
  CallArena arena;
  ExplainRequestView view;
  return ParseExplainRequest(sliced.view(), &arena, &view);
}

// `add` adds an entry to the list `field` of a request.
template <typename Request, typename Add>
void ExpectAtMost(size_t most, const std::string& field, Add add) {
  SCOPED_TRACE(field);
  Request request;
  for (size_t i = 0; i < most; ++i) add(request);
  EXPECT_EQ(Parse(request), absl::OkStatus());
  add(request);
  const absl::Status status = Parse(request);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            field + " has more than " + std::to_string(most) + " entries");
  EXPECT_EQ(Field(status), field);
}

TEST(WireEvaluateTest, ListsAreBounded) {
  using Evaluate = v1::EvaluateRequest;
  using Explain = v1::ExplainRequest;
  const auto only = [](auto* inputs) {
    return inputs->empty() ? inputs->Add() : inputs->Mutable(0);
  };
  ExpectAtMost<Evaluate>(1024, "inputs", [](auto& r) { r.add_inputs(); });
  ExpectAtMost<Evaluate>(1024, "outputs", [](auto& r) { r.add_outputs(); });
  ExpectAtMost<Evaluate>(64, "after", [](auto& r) { r.add_after(); });
  ExpectAtMost<Evaluate>(64, "signal", [](auto& r) { r.add_signal(); });
  ExpectAtMost<Explain>(1024, "inputs", [](auto& r) { r.add_inputs(); });
  ExpectAtMost<Evaluate>(
      65536, "inputs[0].value.spec.sample_shapes", [&](auto& r) {
        v1::TensorValue* value = only(r.mutable_inputs())->mutable_value();
        value->mutable_spec()->add_sample_shapes();
      });
  ExpectAtMost<Explain>(65536, "inputs[0].spec.sample_shapes", [&](auto& r) {
    only(r.mutable_inputs())->mutable_spec()->add_sample_shapes();
  });
}

TEST(WireEvaluateTest, StringsAreBounded) {
  for (const size_t more : {0u, 1u}) {
    v1::EvaluateRequest evaluate;
    evaluate.set_label(std::string(256 + more, 'l'));
    const Sliced labeled(evaluate.SerializeAsString(), 100);
    CallArena arena;
    EvaluateRequestView request;
    const absl::Status label =
        ParseEvaluateRequest(labeled.view(), &arena, &request);
    v1::ExplainRequest explain;
    explain.set_page_token(std::string(8192 + more, 't'));
    const Sliced paged(explain.SerializeAsString(), 100);
    ExplainRequestView explained;
    const absl::Status token =
        ParseExplainRequest(paged.view(), &arena, &explained);
    if (more == 0) {
      EXPECT_TRUE(label.ok()) << label;
      EXPECT_TRUE(token.ok()) << token;
      continue;
    }
    EXPECT_EQ(label.message(), "label has 257 bytes; it may have 256");
    EXPECT_EQ(Field(label), "label");
    EXPECT_EQ(token.message(), "page_token has 8193 bytes; it may have 8192");
    EXPECT_EQ(Field(token), "page_token");
  }
}

TEST(WireEvaluateTest, AnyCutIsAnErrorOrAShorterRequest) {
  const std::string bytes = FullRequest().SerializeAsString();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);
    // Protobuf also looks into the graph, which stays unread here.
    if (size <= static_cast<size_t>(FullRequest().graph().ByteSizeLong()) + 2) {
      continue;
    }
    const Sliced sliced(cut, 16);
    CallArena arena;
    EvaluateRequestView request;
    const bool ok = ParseEvaluateRequest(sliced.view(), &arena, &request).ok();
    v1::EvaluateRequest reference;
    EXPECT_EQ(ok, reference.ParseFromString(cut)) << size;
  }
}

TEST(WireEvaluateTest, ReadsWhatIsToBeExplained) {
  v1::ExplainRequest request;
  *request.mutable_graph() = FullRequest().graph();
  for (const char* name : {"x", "y"}) {
    auto* input = request.add_inputs();
    input->set_name(name);
    input->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT);
    input->mutable_spec()->add_shape(-1);
    input->mutable_spec()->add_shape(7);
  }
  request.set_device("cpu");
  request.set_precision(v1::PRECISION_TF32);
  const std::string bytes = request.SerializeAsString();
  for (size_t piece : {size_t{1}, size_t{5}, bytes.size()}) {
    const Sliced sliced(bytes, piece);
    CallArena arena;
    ExplainRequestView view;
    const absl::Status status =
        ParseExplainRequest(sliced.view(), &arena, &view);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(std::holds_alternative<WireGraphDefinition>(view.graph));
    ASSERT_EQ(view.inputs.size(), 2u);
    EXPECT_EQ(view.inputs[1].name, "y");
    EXPECT_EQ(view.inputs[1].spec.dtype, v1::DATA_TYPE_FLOAT);
    const std::span<const int64_t> shape = view.inputs[1].spec.shape;
    EXPECT_THAT(std::vector<int64_t>(shape.begin(), shape.end()),
                ElementsAre(-1, 7));
    EXPECT_EQ(view.device, "cpu");
    EXPECT_EQ(view.precision, v1::PRECISION_TF32);
  }
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);
    const Sliced sliced(cut, 3);
    CallArena arena;
    ExplainRequestView view;
    v1::ExplainRequest reference;
    EXPECT_EQ(ParseExplainRequest(sliced.view(), &arena, &view).ok(),
              reference.ParseFromString(cut))
        << size;
  }
}

TEST(WireEvaluateTest, ProtobufReadsWhatTheBuilderWrote) {
  const std::string small(8, 's');
  const std::string large(100000, 'l');
  int released = 0;
  const auto release = [](void* count) { ++*static_cast<int*>(count); };
  const int64_t shape[] = {2, 50000};
  const std::span<const int64_t> samples[] = {shape, {}};
  WireTensorSpec spec{v1::DATA_TYPE_UINT8, shape, "HW", {}};
  WireTensorSpec ragged{v1::DATA_TYPE_FLOAT, shape, "", samples};
  const std::vector<EvaluateOutput> outputs = {
      {"l", spec, ForeignBytes{large.data(), large.size(), release, &released}},
      {"s", ragged,
       ForeignBytes{small.data(), small.size(), release, &released}},
      {"kept", spec, WireTensorNumber{300}},
      {"region", spec, {}},
  };
  v1::SyncReport report;
  report.set_state(v1::WORK_STATE_COMPLETED);
  report.set_wait(v1::WAIT_PERFORMED_RECORD);
  report.set_stream_sequence(12);
  v1::ResolvedSettings settings;
  settings.set_device_uuid("GPU-1");
  const std::string report_bytes = report.SerializeAsString();
  const std::string settings_bytes = settings.SerializeAsString();
  EvaluateReply reply;
  reply.work = 9;
  reply.outputs = outputs;
  reply.settings = settings_bytes;
  reply.report = report_bytes;
  {
    ReplyBuffer buffer = BuildEvaluateReply(reply);
    EXPECT_EQ(released, 1);
    EXPECT_EQ(buffer.slice_count(), 3u);
    v1::EvaluateResponse response;
    ASSERT_TRUE(response.ParseFromString(ReplyBytes(buffer)));
    EXPECT_EQ(response.work(), 9u);
    EXPECT_EQ(response.settings().device_uuid(), "GPU-1");
    EXPECT_EQ(response.report().wait(), v1::WAIT_PERFORMED_RECORD);
    EXPECT_EQ(response.report().stream_sequence(), 12u);
    ASSERT_EQ(response.outputs_size(), 4);
    EXPECT_EQ(response.outputs(0).name(), "l");
    EXPECT_EQ(response.outputs(0).value().raw(), large);
    EXPECT_EQ(response.outputs(0).value().spec().layout(), "HW");
    EXPECT_THAT(response.outputs(0).value().spec().shape(),
                ElementsAre(2, 50000));
    EXPECT_EQ(response.outputs(1).value().raw(), small);
    EXPECT_EQ(response.outputs(1).value().spec().sample_shapes_size(), 2);
    EXPECT_EQ(response.outputs(2).value().tensor(), 300u);
    EXPECT_EQ(response.outputs(3).value().source_case(),
              v1::TensorValue::SOURCE_NOT_SET);
  }
  EXPECT_EQ(released, 2);
}

}  // namespace
}  // namespace weir
