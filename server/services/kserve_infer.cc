#include "server/services/kserve_infer.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "server/evaluation/input_bytes.h"
#include "server/evaluation/request_fields.h"
#include "server/rpc/wire/infer_contents.h"
#include "server/rpc/wire/infer_request.h"
#include "server/rpc/wire/infer_response.h"
#include "server/services/evaluation_call.h"
#include "server/services/infer_parameters.h"

namespace weir {
namespace {

// Of an input without an entry among the raw contents.
constexpr size_t kNoRaw = SIZE_MAX;

}  // namespace

// A call of ModelInfer.
class KserveInferService::Call final : public EvaluationCall {
 public:
  Call(ServiceContext* context, ServerCall& call)
      : EvaluationCall(context, call) {}

 private:
  absl::Status Read() override {
    WEIR_RETURN_IF_ERROR(
        ParseInferRequest(call().request(), &call().arena(), &request_));
    call().set_request_id(request_.id);
    if (request_.model_name.empty()) {
      return InvalidField("model_name", "model_name is not set");
    }
    WEIR_ASSIGN_OR_RETURN(
        std::shared_ptr<const ServedModel> found,
        context().models.Find(request_.model_name, request_.model_version));
    set_model(std::move(found));
    WEIR_ASSIGN_OR_RETURN(report_, ReadInferParameters(request_.parameters));
    return absl::OkStatus();
  }

  void FindProgram() override {
    Evaluate(model()->program, {.mode = EvalMode::kSyncFull});
  }

  // -- Its tensors ------------------------------------------------------------

  size_t input_count() const override { return request_.inputs.size(); }

  GivenShape Input(size_t i) const override {
    const InferInput& input = request_.inputs[i];
    return {input.name, {input.shape.data(), input.shape.size()}};
  }

  absl::StatusOr<DType> ReadInput(size_t i, DType declared) override {
    const InferInput& input = request_.inputs[i];
    WEIR_RETURN_IF_ERROR(
        CheckTensorParameters(input.name, InputField(i), input.parameters));
    const std::optional<DType> dtype = DTypeFromKServe(input.datatype);
    if (!dtype.has_value() || *dtype != declared) {
      return InvalidField(
          InputField(i) + ".datatype",
          absl::StrCat("input \"", AbslView(input.name), "\" has datatype \"",
                       AbslView(input.datatype), "\"; the model takes ",
                       AbslView(KServeName(declared))));
    }
    if (input.contents.has_value()) {
      raw_ = kNoRaw;
      if (request_.raw_contents.empty()) return *dtype;
      return InvalidField(
          InputField(i) + ".contents",
          absl::StrCat("input \"", AbslView(input.name),
                       "\" has typed contents while the request "
                       "has raw_input_contents; use one of them"));
    }
    if (raw_taken_ >= request_.raw_contents.size()) {
      return InvalidField(
          InputField(i), absl::StrCat("input \"", AbslView(input.name),
                                      "\" has neither contents nor an entry of "
                                      "raw_input_contents"));
    }
    raw_ = raw_taken_++;
    return *dtype;
  }

  absl::Status FillElements(size_t i, DType dtype, bool on_host,
                            InputSource* source) override {
    const InferInput& input = request_.inputs[i];
    if (raw_ == kNoRaw) return FillTyped(input, dtype, source);
    return FillInput(dtype, input.shape, request_.raw_contents[raw_], on_host,
                     &call().arena(), source);
  }

  absl::Status FillTyped(const InferInput& input, DType dtype,
                         InputSource* source) {
    const absl::Span<const int64_t> shape(input.shape.data(),
                                          input.shape.size());
    WEIR_ASSIGN_OR_RETURN(const int64_t count, NumElements(shape));
    // An element takes at least a byte of the message: a shape that asks for
    // more is refused before memory is taken for it.
    if (static_cast<uint64_t>(count) > call().request().size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the shape asks for ", count,
                       " elements; the contents cannot hold them"));
    }
    const size_t elements = static_cast<size_t>(count);
    WEIR_ASSIGN_OR_RETURN(void* const room, call().arena().TryAllocate(
                                                elements * SizeOf(dtype), 64));
    std::byte* const out = static_cast<std::byte*>(room);
    WEIR_RETURN_IF_ERROR(
        DecodeContents(*input.contents, dtype, elements, &call().arena(), out));
    source->dtype = dtype;
    source->dims.assign(input.shape.begin(), input.shape.end());
    source->pieces.push_back(
        {reinterpret_cast<const char*>(out), elements * SizeOf(dtype)});
    return absl::OkStatus();
  }

  std::string ShapeField(size_t i) const override {
    return InputField(i) + ".shape";
  }

  std::string ElementsField(size_t i) const override {
    return raw_ == kNoRaw ? InputField(i) + ".contents"
                          : absl::StrCat("raw_input_contents[", raw_, "]");
  }

  absl::Status CheckInputs() const override {
    if (raw_taken_ == request_.raw_contents.size()) return absl::OkStatus();
    return InvalidField("raw_input_contents",
                        absl::StrCat(request_.raw_contents.size(),
                                     " raw contents are given for ", raw_taken_,
                                     " inputs that take one"));
  }

  size_t output_count() const override { return request_.outputs.size(); }

  std::string_view OutputName(size_t i) const override {
    return request_.outputs[i].name;
  }

  absl::StatusOr<OutputWish> ReadOutput(size_t i) override {
    const InferRequestedOutput& wanted = request_.outputs[i];
    WEIR_RETURN_IF_ERROR(
        CheckTensorParameters(wanted.name, OutputField(i), wanted.parameters));
    return OutputWish::kInline;
  }

  // -- Its answer -------------------------------------------------------------

  absl::StatusOr<ReplyBuffer> Write(std::span<const size_t> wanted,
                                    ResultBytes& bytes) override {
    // While it may still be refused: what Prepare shares must be taken.
    WEIR_ASSIGN_OR_RETURN(
        const std::span<InferOutput> outputs,
        call().arena().TryAllocateSpan<InferOutput>(wanted.size()));
    for (size_t at = 0; at < wanted.size(); ++at) {
      const TensorMeta& meta = work().OutputMeta(wanted[at]);
      new (&outputs[at]) InferOutput{model()->outputs[wanted[at]].name,
                                     KServeName(meta.dtype),
                                     {meta.dims.data(), meta.dims.size()},
                                     std::nullopt};
    }
    InferReply reply{model()->name, model()->version, request_.id, {}, outputs};
    std::string json;
    InferParameter report;
    if (report_ != ReportWish::kNone) {
      json = ReportJson(work().report(), Frame(report_ == ReportWish::kFull));
      report = {kReportParameter, std::string_view(json)};
      reply.parameters = {&report, 1};
    }
    WEIR_RETURN_IF_ERROR(bytes.Prepare(CopiedBytes(reply), *this));
    for (size_t at = 0; at < wanted.size(); ++at) {
      outputs[at].raw = bytes.Take(wanted[at]);
    }
    return BuildInferReply(reply);
  }

  InferRequest request_;
  ReportWish report_ = ReportWish::kNone;
  size_t raw_taken_ = 0;  // entries of the raw contents
  size_t raw_ = kNoRaw;   // that of the input which was read last
};

void KserveInferService::Register(MethodTable* table) {
  table->Add("inference.GRPCInferenceService", "ModelInfer", Traffic::kHeavy,
             [this](ServerCall& call) {
               EvaluationCall::Handle<Call>(context_, call);
             });
}

}  // namespace weir
