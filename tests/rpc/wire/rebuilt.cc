#include "tests/rpc/wire/rebuilt.h"

#include <string>
#include <variant>

#include "server/rpc/wire/wire_writer.h"
#include "tests/bytes/sliced.h"

namespace weir {
namespace {

template <typename Values, typename Repeated>
void AddAll(const Values& values, Repeated* to) {
  to->Add(values.begin(), values.end());
}

void Rebuild(const WireTensorSpec& from, v1::TensorSpec* spec) {
  spec->set_dtype(static_cast<v1::DataType>(from.dtype));
  AddAll(from.shape, spec->mutable_shape());
  spec->set_layout(std::string(from.layout));
  for (const auto& sample : from.sample_shapes) {
    AddAll(sample, spec->add_sample_shapes()->mutable_dims());
  }
}

void Rebuild(const WireRegion& from, v1::RegionReference* region) {
  region->set_region(std::string(from.region));
  region->set_offset(from.offset);
  region->set_byte_size(from.byte_size);
  AddAll(from.strides, region->mutable_strides());
}

void Rebuild(const WireTensor& from, v1::TensorValue* value) {
  Rebuild(from.spec, value->mutable_spec());
  if (const auto* raw = std::get_if<ByteView>(&from.source)) {
    value->set_raw(ToString(*raw));
  } else if (const auto* kept = std::get_if<WireTensorNumber>(&from.source)) {
    value->set_tensor(kept->number);
  } else if (const auto* region = std::get_if<WireRegion>(&from.source)) {
    Rebuild(*region, value->mutable_region());
  }
}

void Rebuild(const WireTensor& from, v1::NamedTensor* tensor) {
  tensor->set_name(std::string(from.name));
  Rebuild(from, tensor->mutable_value());
}

void Rebuild(const WireGraph& from, v1::Graph* graph) {
  if (const auto* definition = std::get_if<WireGraphDefinition>(&from)) {
    // Not looked into by our parser: what is broken in it stays out.
    graph->mutable_definition()->ParsePartialFromString(
        ToString(definition->bytes));
  } else if (const auto* onnx = std::get_if<WireOnnxModel>(&from)) {
    graph->set_onnx_model(ToString(onnx->bytes));
  } else if (const auto* model = std::get_if<WireModelReference>(&from)) {
    graph->mutable_model()->set_name(std::string(model->name));
    if (!model->version_label.empty()) {
      graph->mutable_model()->set_version_label(
          std::string(model->version_label));
    } else {
      graph->mutable_model()->set_version(model->version);
    }
  }
}

template <typename Map>
void Rebuild(std::span<const InferParameter> from, Map* parameters) {
  for (const InferParameter& parameter : from) {
    inference::InferParameter& to = (*parameters)[std::string(parameter.name)];
    to.Clear();  // the last of a name wins
    struct Setter {
      inference::InferParameter& to;
      void operator()(std::monostate) const {}
      void operator()(bool value) const { to.set_bool_param(value); }
      void operator()(int64_t value) const { to.set_int64_param(value); }
      void operator()(uint64_t value) const { to.set_uint64_param(value); }
      void operator()(double value) const { to.set_double_param(value); }
      void operator()(std::string_view value) const {
        to.set_string_param(std::string(value));
      }
    };
    std::visit(Setter{to}, parameter.value);
  }
}

// Commands are not looked into by our parser: what is broken in one stays out,
// as does one that nobody knows.
void Rebuild(const WireCommand& from, v1::Command* command) {
  const std::string bytes = ToString(from.message);
  std::string field;
  if (from.number != 0) {
    field.resize(BytesFieldSize(from.number, bytes.size()));
    WireWriter(field.data()).BytesField(from.number, bytes);
  }
  command->ParsePartialFromString(field);
}

}  // namespace

v1::EvaluateRequest Rebuilt(const EvaluateRequestView& from) {
  v1::EvaluateRequest request;
  Rebuild(from.graph, request.mutable_graph());
  for (const WireTensor& input : from.inputs) {
    Rebuild(input, request.add_inputs());
  }
  for (const WireOutputRequest& output : from.outputs) {
    v1::OutputRequest* to = request.add_outputs();
    to->set_name(std::string(output.name));
    if (const auto* kept = std::get_if<WireTensorNumber>(&output.destination)) {
      to->set_tensor(kept->number);
    } else if (const auto* region =
                   std::get_if<WireRegion>(&output.destination)) {
      Rebuild(*region, to->mutable_region());
    } else if (const auto* into =
                   std::get_if<WireTensorInto>(&output.destination)) {
      to->set_into(into->number);
    }
  }
  request.set_mode(static_cast<v1::EvalMode>(from.mode));
  request.set_context(from.context);
  request.set_device(std::string(from.device));
  v1::StreamPolicy* policy = request.mutable_stream_policy();
  policy->set_kind(
      static_cast<v1::StreamPolicy::Kind>(from.stream_policy.kind));
  policy->set_stream(from.stream_policy.stream);
  policy->set_priority(from.stream_policy.priority);
  const auto rebuild_points = [](std::span<const WirePoint> points, auto* to) {
    for (const WirePoint& point : points) {
      v1::Point* rebuilt = to->Add();
      rebuilt->set_timeline(point.timeline);
      rebuilt->set_value(point.value);
    }
  };
  rebuild_points(from.after, request.mutable_after());
  rebuild_points(from.signal, request.mutable_signal());
  if (from.rng_seed.has_value()) request.set_rng_seed(*from.rng_seed);
  request.set_label(std::string(from.label));
  request.set_precision(static_cast<v1::Precision>(from.precision));
  request.set_report(static_cast<v1::ReportLevel>(from.report));
  request.set_report_settings(from.report_settings);
  request.set_on_conflict(static_cast<v1::ContextConflict>(from.on_conflict));
  request.set_work(from.work);
  return request;
}

v1::RunRequest Rebuilt(const RunRequestView& from) {
  v1::RunRequest request;
  for (const WireCommand& command : from.commands) {
    Rebuild(command, request.add_commands());
  }
  return request;
}

v1::SessionRequest Rebuilt(const SessionRequestView& from) {
  v1::SessionRequest request;
  if (from.opens) {
    request.mutable_open()->set_session(from.open.session);
    request.mutable_open()->set_resume(from.open.resume);
    request.mutable_open()->set_push_completions(from.open.push_completions);
  }
  request.set_first_sequence(from.first_sequence);
  for (const WireCommand& command : from.commands) {
    Rebuild(command, request.add_commands());
  }
  request.set_acknowledged(from.acknowledged);
  return request;
}

v1::TensorPut Rebuilt(const TensorPutView& from) {
  v1::TensorPut put;
  put.set_tensor(from.tensor);
  Rebuild(from.value, put.mutable_value());
  put.set_context(from.context);
  put.set_device(std::string(from.device));
  put.set_mode(static_cast<v1::EvalMode>(from.mode));
  put.set_work(from.work);
  put.set_into_existing(from.into_existing);
  put.set_report(static_cast<v1::ReportLevel>(from.report));
  return put;
}

v1::ExplainRequest Rebuilt(const ExplainRequestView& from) {
  v1::ExplainRequest request;
  Rebuild(from.graph, request.mutable_graph());
  for (const WireTensor& input : from.inputs) {
    v1::NamedTensorSpec* to = request.add_inputs();
    to->set_name(std::string(input.name));
    Rebuild(input.spec, to->mutable_spec());
  }
  request.set_device(std::string(from.device));
  request.set_precision(static_cast<v1::Precision>(from.precision));
  request.set_page_size(from.page_size);
  request.set_page_token(std::string(from.page_token));
  return request;
}

inference::ModelInferRequest Rebuilt(const InferRequest& from) {
  inference::ModelInferRequest request;
  request.set_model_name(std::string(from.model_name));
  request.set_model_version(std::string(from.model_version));
  request.set_id(std::string(from.id));
  Rebuild(from.parameters, request.mutable_parameters());
  for (const InferInput& input : from.inputs) {
    auto* to = request.add_inputs();
    to->set_name(std::string(input.name));
    to->set_datatype(std::string(input.datatype));
    AddAll(input.shape, to->mutable_shape());
    Rebuild(input.parameters, to->mutable_parameters());
    // Decoded later, by type.
    if (input.contents.has_value()) {
      to->mutable_contents()->ParsePartialFromString(ToString(*input.contents));
    }
  }
  for (const InferRequestedOutput& output : from.outputs) {
    auto* to = request.add_outputs();
    to->set_name(std::string(output.name));
    Rebuild(output.parameters, to->mutable_parameters());
  }
  for (const ByteView& raw : from.raw_contents) {
    request.add_raw_input_contents(ToString(raw));
  }
  return request;
}

}  // namespace weir
