#include "kernels/device/cuda/cudnn.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/thread_role.h"
#include "kernels/device/cuda/cuda_status.h"
#include "kernels/device/cuda/dynamic_library.h"

namespace weir::cuda {

// One object of cuDNN's graphs. Its attributes are set, then it is finalized.
class Descriptor {
 public:
  Descriptor(Cudnn* library, cudnnBackendDescriptorType_t type)
      : library_(library), status_(library->descriptor_create_(type, &raw_)) {}
  Descriptor(Descriptor&& other) noexcept
      : library_(other.library_),
        raw_(std::exchange(other.raw_, nullptr)),
        status_(other.status_) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (raw_ != nullptr) (void)library_->descriptor_destroy_(raw_);
  }

  cudnnBackendDescriptor_t raw() const { return raw_; }
  cudnnBackendDescriptor_t release() { return std::exchange(raw_, nullptr); }

  // The first error stays and is Finalize()'s.
  template <typename T>
  Descriptor& Set(cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type,
                  absl::Span<const T> values) {
    if (status_ == CUDNN_STATUS_SUCCESS) {
      status_ = library_->attribute_set_(
          raw_, name, type, static_cast<int64_t>(values.size()), values.data());
    }
    return *this;
  }
  template <typename T>
  Descriptor& Set(cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, const T& value) {
    return Set(name, type, absl::Span<const T>(&value, 1));
  }
  Descriptor& Set(cudnnBackendAttributeName_t name,
                  const std::vector<int64_t>& values) {
    return Set(name, CUDNN_TYPE_INT64, absl::MakeConstSpan(values));
  }
  Descriptor& Set(cudnnBackendAttributeName_t name, const Descriptor& value) {
    return Set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value.raw());
  }

  absl::Status Finalize(const char* what) {
    if (status_ == CUDNN_STATUS_SUCCESS) status_ = library_->finalize_(raw_);
    return library_->Check(status_, what);
  }

  // At most values.size() of them; returns how many.
  template <typename T>
  absl::StatusOr<size_t> Get(cudnnBackendAttributeName_t name,
                             cudnnBackendAttributeType_t type,
                             absl::Span<T> values) const {
    int64_t count = 0;
    WEIR_RETURN_IF_ERROR(library_->Check(
        library_->attribute_get_(raw_, name, type,
                                 static_cast<int64_t>(values.size()), &count,
                                 values.data()),
        "cudnnBackendGetAttribute"));
    return std::min(static_cast<size_t>(std::max<int64_t>(count, 0)),
                    values.size());
  }

 private:
  Cudnn* const library_;
  cudnnBackendDescriptor_t raw_ = nullptr;
  cudnnStatus_t status_;
};

class Cudnn::Handle {
 public:
  static absl::StatusOr<Handle> Take(Cudnn* library, Handles* from) {
    {
      MutexLock lock(&from->mu);
      if (!from->unused.empty()) {
        Handle taken(from, from->unused.back());
        from->unused.pop_back();
        return taken;
      }
    }
    WEIR_ASSIGN_OR_RETURN(cudnnHandle_t made, library->MakeHandle());
    return Handle(from, made);
  }
  Handle(Handle&& other) noexcept
      : from_(other.from_), raw_(std::exchange(other.raw_, nullptr)) {}
  Handle& operator=(Handle&&) = delete;
  ~Handle() {
    if (raw_ == nullptr) return;
    MutexLock lock(&from_->mu);
    from_->unused.push_back(raw_);
  }
  cudnnHandle_t raw() const { return raw_; }

 private:
  Handle(Handles* from, cudnnHandle_t raw) : from_(from), raw_(raw) {}
  Handles* const from_;
  cudnnHandle_t raw_;
};

namespace {

constexpr char kSoname[] = "libcudnn.so.9";
constexpr int64_t kMaxWorkspace = int64_t{256} << 20;
constexpr size_t kMaxCandidates = 32;

// Names of the operands in a graph.
enum Uid : int64_t { kIn = 1, kWeights, kResidual, kBias, kOut, kSums, kAdded };

// The marks of a graph's and a plan's handle are deprecated in favor of device
// properties, which do without a device; we have one.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
constexpr auto kGraphHandle = CUDNN_ATTR_OPERATIONGRAPH_HANDLE;
constexpr auto kPlanHandle = CUDNN_ATTR_EXECUTION_PLAN_HANDLE;
#pragma GCC diagnostic pop

// Of dims N x C x spatial, in memory in that order or with C last.
std::vector<int64_t> DenseStrides(const std::vector<int64_t>& dims,
                                  bool channels_last) {
  std::vector<int64_t> strides(dims.size());
  int64_t next = 1;
  if (channels_last) {
    strides[1] = 1;
    next = dims[1];
  }
  for (size_t d = dims.size(); d-- > 0;) {
    if (channels_last && d == 1) continue;
    strides[d] = next;
    next *= dims[d];
  }
  return strides;
}

// Some engines count elements in int.
absl::Status CheckElements(const std::vector<int64_t>& dims) {
  int elements = 1;
  for (const int64_t dim : dims) {
    if (__builtin_mul_overflow(elements, dim, &elements)) {
      return absl::UnimplementedError(
          absl::StrCat("a tensor of shape [", absl::StrJoin(dims, ","),
                       "] has more elements than cuDNN takes, 2^31 - 1"));
    }
  }
  return absl::OkStatus();
}

// Whether an engine with this mark answers otherwise than strict sums in the
// computed type: Winograd and FFT trade accuracy for speed, tensor cores round
// floats to TF32.
bool IsRefused(cudnnBackendNumericalNote_t note, cudnnDataType_t type) {
  switch (note) {
    case CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP:
      return false;
    case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
      return type == CUDNN_DATA_FLOAT;
    default:
      return true;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Cudnn>> Cudnn::Open() {
  absl::StatusOr<DynamicLibrary> library = DynamicLibrary::Open(kSoname);
  if (!library.ok()) {
    return absl::UnimplementedError(absl::StrCat(
        "needs cuDNN 9: ", absl::string_view(library.status().message())));
  }
  std::unique_ptr<Cudnn> dnn(new Cudnn());
  const DynamicLibrary& l = *library;
  WEIR_RETURN_IF_ERROR(l.Load("cudnnGetVersion", &dnn->version_));
  WEIR_RETURN_IF_ERROR(l.Load("cudnnGetErrorString", &dnn->error_string_));
  WEIR_RETURN_IF_ERROR(l.Load("cudnnCreate", &dnn->create_));
  WEIR_RETURN_IF_ERROR(l.Load("cudnnDestroy", &dnn->destroy_));
  WEIR_RETURN_IF_ERROR(l.Load("cudnnSetStream", &dnn->set_stream_));
  WEIR_RETURN_IF_ERROR(
      l.Load("cudnnBackendCreateDescriptor", &dnn->descriptor_create_));
  WEIR_RETURN_IF_ERROR(
      l.Load("cudnnBackendDestroyDescriptor", &dnn->descriptor_destroy_));
  WEIR_RETURN_IF_ERROR(
      l.Load("cudnnBackendSetAttribute", &dnn->attribute_set_));
  WEIR_RETURN_IF_ERROR(
      l.Load("cudnnBackendGetAttribute", &dnn->attribute_get_));
  WEIR_RETURN_IF_ERROR(l.Load("cudnnBackendFinalize", &dnn->finalize_));
  WEIR_RETURN_IF_ERROR(l.Load("cudnnBackendExecute", &dnn->execute_));
  const size_t version = dnn->version_();
  if (version / 10000 != CUDNN_MAJOR) {
    return absl::FailedPreconditionError(
        absl::StrCat(l.path(), " is cuDNN ", version, "; this build needs ",
                     CUDNN_MAJOR, ".x"));
  }
  return dnn;
}

Cudnn::~Cudnn() {
  for (Handles* handles : {&preparing_, &launching_}) {
    MutexLock lock(&handles->mu);
    for (cudnnHandle_t handle : handles->unused) (void)destroy_(handle);
  }
}

absl::StatusOr<cudnnHandle_t> Cudnn::MakeHandle() {
  ExpectMayWait("cudnnCreate");
  cudnnHandle_t made = nullptr;
  WEIR_RETURN_IF_ERROR(Check(create_(&made), "cudnnCreate"));
  return made;
}

absl::Status Cudnn::ExpectLaunches(size_t at_once) {
  MutexLock making(&making_mu_);
  while (made_for_launches_ < at_once) {
    WEIR_ASSIGN_OR_RETURN(cudnnHandle_t made, MakeHandle());
    ++made_for_launches_;
    MutexLock lock(&launching_.mu);
    launching_.unused.push_back(made);
  }
  return absl::OkStatus();
}

absl::Status Cudnn::Check(cudnnStatus_t status, const char* what) const {
  if (status == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  const std::string text = absl::StrCat(what, ": ", error_string_(status));
  // Its reasons follow it.
  if (status >= CUDNN_STATUS_NOT_SUPPORTED &&
      status < CUDNN_STATUS_INTERNAL_ERROR) {
    return absl::UnimplementedError(text);
  }
  const cudaError_t error = cudaPeekAtLastError();
  if (IsSticky(error)) return CudaStatus(error, what);
  return absl::InternalError(text);
}

namespace {

// The graph of a convolution, built up to cuDNN's list of engines.
class GraphBuilder {
 public:
  GraphBuilder(Cudnn* library, const ConvolutionSpec& spec)
      : library_(library),
        spec_(spec),
        compute_(spec.type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE
                                                : CUDNN_DATA_FLOAT) {}

  absl::StatusOr<Descriptor> Build(cudnnHandle_t handle) {
    WEIR_RETURN_IF_ERROR(AddOperations());
    std::vector<cudnnBackendDescriptor_t> raw;
    for (const Descriptor& operation : operations_) {
      raw.push_back(operation.raw());
    }
    Descriptor graph(library_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph.Set(kGraphHandle, CUDNN_TYPE_HANDLE, handle)
        .Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
             absl::Span<const cudnnBackendDescriptor_t>(raw));
    WEIR_RETURN_IF_ERROR(graph.Finalize("a convolution's graph"));
    return graph;
  }

 private:
  absl::Status AddOperations() {
    WEIR_ASSIGN_OR_RETURN(const Descriptor* in, Tensor(kIn, spec_.in));
    WEIR_ASSIGN_OR_RETURN(const Descriptor* weights,
                          Tensor(kWeights, spec_.weights));
    const bool adds = spec_.residual || spec_.bias;
    WEIR_ASSIGN_OR_RETURN(const Descriptor* sums,
                          Tensor(adds ? kSums : kOut, spec_.out, adds));
    Descriptor window(library_, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    window.Set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, compute_)
        .Set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
             CUDNN_CROSS_CORRELATION)
        .Set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64,
             static_cast<int64_t>(spec_.stride.size()))
        .Set(CUDNN_ATTR_CONVOLUTION_DILATIONS, spec_.dilation)
        .Set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, spec_.stride)
        .Set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, spec_.pad_begin)
        .Set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, spec_.pad_end);
    WEIR_RETURN_IF_ERROR(window.Finalize("a convolution's window"));
    Descriptor sum(library_,
                   CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    sum.Set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, window)
        .Set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, *in)
        .Set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, *weights)
        .Set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, *sums);
    if (compute_ == CUDNN_DATA_DOUBLE) {
      sum.Set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_DOUBLE,
              1.0)
          .Set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_DOUBLE,
               0.0);
    } else {
      sum.Set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT,
              1.0f)
          .Set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT,
               0.0f);
    }
    WEIR_RETURN_IF_ERROR(sum.Finalize("a convolution"));
    operations_.push_back(std::move(sum));
    // cuDNN's compiled engines know this order.
    if (spec_.residual) {
      WEIR_ASSIGN_OR_RETURN(const Descriptor* residual,
                            Tensor(kResidual, spec_.out));
      WEIR_ASSIGN_OR_RETURN(
          const Descriptor* added,
          Tensor(spec_.bias ? kAdded : kOut, spec_.out, spec_.bias));
      WEIR_RETURN_IF_ERROR(Add(*sums, *residual, *added));
      sums = added;
    }
    if (spec_.bias) {
      std::vector<int64_t> dims(spec_.out.size(), 1);
      dims[1] = spec_.out[1];
      WEIR_ASSIGN_OR_RETURN(const Descriptor* bias, Tensor(kBias, dims));
      WEIR_ASSIGN_OR_RETURN(const Descriptor* out, Tensor(kOut, spec_.out));
      WEIR_RETURN_IF_ERROR(Add(*sums, *bias, *out));
    }
    return absl::OkStatus();
  }

  // Inside a graph ("virtual"): not rounded.
  absl::StatusOr<const Descriptor*> Tensor(Uid uid,
                                           const std::vector<int64_t>& dims,
                                           bool inside = false) {
    Descriptor tensor(library_, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    tensor
        .Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64,
             static_cast<int64_t>(uid))
        .Set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE,
             inside ? compute_ : spec_.type)
        .Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, int64_t{16})
        .Set(CUDNN_ATTR_TENSOR_DIMENSIONS, dims)
        .Set(CUDNN_ATTR_TENSOR_STRIDES, DenseStrides(dims, spec_.channels_last))
        .Set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, inside);
    WEIR_RETURN_IF_ERROR(tensor.Finalize("a tensor of a convolution"));
    tensors_.push_back(std::make_unique<Descriptor>(std::move(tensor)));
    return tensors_.back().get();
  }

  absl::Status Add(const Descriptor& x, const Descriptor& b,
                   const Descriptor& y) {
    Descriptor add(library_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    add.Set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE,
            CUDNN_POINTWISE_ADD)
        .Set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, compute_);
    WEIR_RETURN_IF_ERROR(add.Finalize("an addition"));
    Descriptor operation(library_,
                         CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, add)
        .Set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
        .Set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b)
        .Set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    WEIR_RETURN_IF_ERROR(operation.Finalize("an addition to a convolution"));
    operations_.push_back(std::move(operation));
    return absl::OkStatus();
  }

  Cudnn* const library_;
  const ConvolutionSpec& spec_;
  const cudnnDataType_t compute_;
  std::vector<std::unique_ptr<Descriptor>> tensors_;
  std::vector<Descriptor> operations_;
};

// What the heuristics of `mode` propose, best first.
absl::StatusOr<std::vector<Descriptor>> Candidates(
    Cudnn* library, const Descriptor& graph, cudnnBackendHeurMode_t mode) {
  Descriptor heuristics(library, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .Set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  WEIR_RETURN_IF_ERROR(heuristics.Finalize("cuDNN's heuristics"));
  std::vector<Descriptor> found;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (size_t i = 0; i < kMaxCandidates; ++i) {
    found.emplace_back(library, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    raw.push_back(found.back().raw());
  }
  WEIR_ASSIGN_OR_RETURN(
      const size_t count,
      heuristics.Get(CUDNN_ATTR_ENGINEHEUR_RESULTS,
                     CUDNN_TYPE_BACKEND_DESCRIPTOR, absl::MakeSpan(raw)));
  while (found.size() > count) found.pop_back();
  return found;
}

// Whether the engine answers the same every time, in the precision of `type`,
// without a compiler of its own.
absl::StatusOr<bool> IsTaken(Cudnn* library, const Descriptor& candidate,
                             cudnnDataType_t type) {
  Descriptor engine(library, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.raw();
  WEIR_RETURN_IF_ERROR(candidate
                           .Get(CUDNN_ATTR_ENGINECFG_ENGINE,
                                CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                absl::Span<cudnnBackendDescriptor_t>(&raw, 1))
                           .status());
  std::vector<cudnnBackendNumericalNote_t> numerical(
      CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  WEIR_ASSIGN_OR_RETURN(
      size_t count,
      engine.Get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                 absl::MakeSpan(numerical)));
  for (size_t i = 0; i < count; ++i) {
    if (IsRefused(numerical[i], type)) return false;
  }
  std::vector<cudnnBackendBehaviorNote_t> behavior(
      CUDNN_BEHAVIOR_NOTE_TYPE_COUNT);
  WEIR_ASSIGN_OR_RETURN(
      count, engine.Get(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                        CUDNN_TYPE_BEHAVIOR_NOTE, absl::MakeSpan(behavior)));
  return std::find(behavior.begin(),
                   behavior.begin() + static_cast<ptrdiff_t>(count),
                   CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) ==
         behavior.begin() + static_cast<ptrdiff_t>(count);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Convolution>> Cudnn::Prepare(
    const ConvolutionSpec& spec) {
  ExpectMayWait("Cudnn::Prepare");
  for (const auto* dims : {&spec.in, &spec.weights, &spec.out}) {
    WEIR_RETURN_IF_ERROR(CheckElements(*dims));
  }
  WEIR_ASSIGN_OR_RETURN(const Handle handle, Handle::Take(this, &preparing_));
  GraphBuilder builder(this, spec);
  WEIR_ASSIGN_OR_RETURN(const Descriptor graph, builder.Build(handle.raw()));
  for (const cudnnBackendHeurMode_t mode :
       {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    auto candidates = Candidates(this, graph, mode);
    if (!candidates.ok()) {
      if (absl::IsUnimplemented(candidates.status())) continue;
      return candidates.status();
    }
    for (const Descriptor& candidate : *candidates) {
      WEIR_ASSIGN_OR_RETURN(const bool taken,
                            IsTaken(this, candidate, spec.type));
      if (!taken) continue;
      Descriptor plan(this, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      plan.Set(kPlanHandle, CUDNN_TYPE_HANDLE, handle.raw())
          .Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, candidate);
      const absl::Status made = plan.Finalize("a convolution's plan");
      if (IsDeviceFault(made)) return made;
      if (!made.ok()) continue;  // the next one may suit
      int64_t workspace = 0;
      WEIR_RETURN_IF_ERROR(plan.Get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                    CUDNN_TYPE_INT64,
                                    absl::Span<int64_t>(&workspace, 1))
                               .status());
      if (workspace > kMaxWorkspace) continue;
      std::shared_ptr<Convolution> result(new Convolution(this));
      result->residual_ = spec.residual;
      result->bias_ = spec.bias;
      result->plan_ = plan.release();
      result->scratch_bytes_ = static_cast<size_t>(workspace);
      return result;
    }
  }
  return absl::UnimplementedError(
      "cuDNN has no deterministic engine for this convolution");
}

Convolution::~Convolution() {
  if (plan_ != nullptr) (void)library_->descriptor_destroy_(plan_);
}

absl::Status Convolution::Run(Stream& stream,
                              const ConvolutionOperands& operands,
                              void* scratch) const {
  std::array<int64_t, 5> uids = {kIn, kWeights, kOut};
  std::array<const void*, 5> addresses = {operands.in, operands.weights,
                                          operands.out};
  size_t count = 3;
  if (residual_) {
    uids[count] = kResidual;
    addresses[count++] = operands.residual;
  }
  if (bias_) {
    uids[count] = kBias;
    addresses[count++] = operands.bias;
  }
  Descriptor pack(library_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
           absl::MakeConstSpan(uids).first(count))
      .Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
           absl::MakeConstSpan(addresses).first(count))
      .Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, scratch);
  WEIR_RETURN_IF_ERROR(pack.Finalize("a convolution's operands"));
  WEIR_ASSIGN_OR_RETURN(const Cudnn::Handle handle,
                        Cudnn::Handle::Take(library_, &library_->launching_));
  WEIR_RETURN_IF_ERROR(library_->Check(
      library_->set_stream_(handle.raw(),
                            static_cast<cudaStream_t>(stream.native_handle())),
      "cudnnSetStream"));
  return library_->Check(library_->execute_(handle.raw(), plan_, pack.raw()),
                         "cudnnBackendExecute");
}

}  // namespace weir::cuda
