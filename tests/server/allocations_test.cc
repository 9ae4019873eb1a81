// The request path takes nothing from the heap between the handler's entry and
// its answer, once it has run for a while, but for gRPC's slices.
#include <dlfcn.h>
#include <execinfo.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/backend/devices.h"
#include "kernels/ops/registry.h"
#include "proto/inference/grpc_service.pb.h"
#include "proto/weir/v1/evaluator.pb.h"
#include "server/rpc/peer.h"
#include "server/services/evaluator.h"
#include "server/services/kserve_infer.h"
#include "tests/base/event.h"
#include "tests/server/model_folder.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WEIR_COUNTS_BLOCKS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WEIR_COUNTS_BLOCKS 0
#endif
#endif
#ifndef WEIR_COUNTS_BLOCKS
#define WEIR_COUNTS_BLOCKS 1
#endif

namespace weir {
namespace {

// Who took a block from the heap: the frames above operator new.
struct Taken {
  std::array<void*, 24> frames;
  int depth = 0;
};

std::atomic<bool> counts{false};
std::atomic<size_t> taken_count{0};
std::array<Taken, 1024> taken;

void* Take(size_t bytes, size_t alignment) {
  if (counts.load(std::memory_order_acquire)) {
    const size_t at = taken_count.fetch_add(1);
    if (at < taken.size()) {
      taken[at].depth = backtrace(taken[at].frames.data(),
                                  static_cast<int>(taken[at].frames.size()));
    }
  }
  void* const block =
      alignment <= alignof(std::max_align_t)
          ? std::malloc(bytes)
          : std::aligned_alloc(alignment,
                               (bytes + alignment - 1) / alignment * alignment);
  if (block == nullptr) std::abort();
  return block;
}

// Not inlined: the compiler would take what it frees for a mismatch.
[[gnu::noinline, maybe_unused]] void Give(void* block) { std::free(block); }

enum class Owner { kServer, kKernels, kGrpc };

// Whose the innermost frame is, of those that are one of these.
Owner OwnerOf(const Taken& block) {
  Dl_info own = {};
  dladdr(reinterpret_cast<void*>(&Take), &own);
  // The first two are Take and operator new, in this program.
  for (int i = 2; i < block.depth; ++i) {
    Dl_info info = {};
    if (dladdr(block.frames[static_cast<size_t>(i)], &info) == 0) continue;
    const std::string_view file = info.dli_fname;
    if (file.find("libgrpc") != file.npos) return Owner::kGrpc;
    if (file.find("libweir.so") != file.npos) return Owner::kKernels;
    if (info.dli_fbase == own.dli_fbase) return Owner::kServer;
  }
  return Owner::kServer;
}

std::span<const Taken> All() {
  return std::span(taken).first(std::min(taken_count.load(), taken.size()));
}

size_t TakenBy(Owner owner) {
  return static_cast<size_t>(std::count_if(
      All().begin(), All().end(),
      [owner](const Taken& block) { return OwnerOf(block) == owner; }));
}

std::string Describe(const Taken& block) {
  std::string text;
  char** const names = backtrace_symbols(block.frames.data(), block.depth);
  for (int i = 2; i < block.depth && i < 14; ++i) {
    text += std::string(names[i]) + "\n";
  }
  std::free(names);
  return text;
}

std::string FirstOf(Owner owner) {
  for (const Taken& block : All()) {
    if (OwnerOf(block) == owner) return Describe(block);
  }
  return "";
}

}  // namespace
}  // namespace weir

#if WEIR_COUNTS_BLOCKS
void* operator new(size_t bytes) { return weir::Take(bytes, 1); }
void* operator new[](size_t bytes) { return weir::Take(bytes, 1); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return weir::Take(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return weir::Take(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* block) noexcept { weir::Give(block); }
void operator delete[](void* block) noexcept { weir::Give(block); }
void operator delete(void* block, size_t) noexcept { weir::Give(block); }
void operator delete[](void* block, size_t) noexcept { weir::Give(block); }
void operator delete(void* block, std::align_val_t) noexcept {
  weir::Give(block);
}
void operator delete[](void* block, std::align_val_t) noexcept {
  weir::Give(block);
}
void operator delete(void* block, size_t, std::align_val_t) noexcept {
  weir::Give(block);
}
void operator delete[](void* block, size_t, std::align_val_t) noexcept {
  weir::Give(block);
}
#endif

namespace weir {
namespace {

// One that is used again, as an I/O thread uses its own.
class ReusedCall final : public ServerCall {
 public:
  explicit ReusedCall(std::string_view message)
      : piece_(reinterpret_cast<const std::byte*>(message.data()),
               message.size()) {
    request_ = ByteView({&piece_, 1}, message.size());
    peer_ = PeerKey(Connection());
  }

  // Answers once; counts between the handler's entry and its answer.
  void Answer(const Method& method, bool count) {
    answer_.reset();
    counts.store(count, std::memory_order_release);
    method.handler(*this);
    while (!answer_.has_value()) {
      resumed_.Wait(++resumes_);
      fn_(*this, arg_);
    }
    reply_ = ReplyBuffer();
    arena_.Reset();
  }
  const absl::Status& answer() const { return *answer_; }

  void Resume(ResumeFn fn, void* arg) override {
    fn_ = fn;
    arg_ = arg;
    resumed_.Set();
  }
  std::string Connection() const override { return "ipv4:192.0.2.1:1000"; }
  std::optional<std::string_view> Header(std::string_view) const override {
    return std::nullopt;
  }
  void Reply(ReplyBuffer reply) override {
    counts.store(false, std::memory_order_release);
    reply_ = std::move(reply);
    answer_ = absl::OkStatus();
  }
  void Fail(const absl::Status& error) override {
    counts.store(false, std::memory_order_release);
    answer_ = error;
  }
  void Write(ReplyBuffer, ResumeFn, void*) override {}

 private:
  const BytePiece piece_;
  Event resumed_;
  size_t resumes_ = 0;
  ResumeFn fn_ = nullptr;
  void* arg_ = nullptr;
  ReplyBuffer reply_;
  std::optional<absl::Status> answer_;
};

// Whether short works run in the I/O thread.
class AllocationsTest : public ::testing::TestWithParam<bool> {
 protected:
  AllocationsTest()
      : engine_(&engines_.Add(*Engine::Create(MakeCpuDevice({.cpu_threads = 1}),
                                              registry_.get(), SmallEngine()))),
        models_(OpenModels()),
        context_{options_,   engines_,   *models_,    admission_,   metrics_,
                 of_models_, readiness_, long_steps_, evaluations_, "test"},
        evaluator_(&context_),
        kserve_(&context_) {
    evaluator_.Register(&table_);
    kserve_.Register(&table_);
  }

  static EngineOptions SmallEngine() {
    EngineOptions options;
    options.pinned_bytes = size_t{64} << 20;
    options.inline_below =
        GetParam() ? absl::InfiniteDuration() : absl::ZeroDuration();
    return options;
  }

  std::unique_ptr<ModelRepository> OpenModels() {
    folder_.Write("copy", testing::IdentityModel(onnx::TensorProto::FLOAT));
    RepositoryOptions options;
    options.root = folder_.path();
    auto models =
        *ModelRepository::Open(options, &engine_->device(), registry_.get());
    models->LoadAll();
    return models;
  }

  // Of ours.
  void ExpectNone(std::string_view method_name, const std::string& message) {
    if (!WEIR_COUNTS_BLOCKS) {
      GTEST_SKIP() << "a sanitizer has the heap";
    }
    const Method* method = nullptr;
    for (const Method& each : table_.methods()) {
      if (each.name == method_name) method = &each;
    }
    ASSERT_NE(method, nullptr);
    ReusedCall call(message);
    constexpr int kWarmUp = 200;
    constexpr int kCounted = 32;
    // The first one makes what the others use again.
    call.Answer(*method, /*count=*/true);
    EXPECT_GT(TakenBy(Owner::kServer), 0u);
    EXPECT_GT(TakenBy(Owner::kKernels), 0u);
    for (int i = 0; i < kWarmUp; ++i) {
      call.Answer(*method, /*count=*/false);
      ASSERT_TRUE(call.answer().ok()) << call.answer();
    }
    taken_count = 0;
    for (int i = 0; i < kCounted; ++i) {
      call.Answer(*method, /*count=*/true);
      ASSERT_TRUE(call.answer().ok()) << call.answer();
    }
    EXPECT_EQ(TakenBy(Owner::kServer), 0u) << FirstOf(Owner::kServer);
    EXPECT_EQ(TakenBy(Owner::kKernels), 0u) << FirstOf(Owner::kKernels);
    EXPECT_GE(TakenBy(Owner::kGrpc), size_t{kCounted});
  }

  static std::string Infer(int64_t elements) {
    inference::ModelInferRequest request;
    request.set_model_name("copy");
    auto* const input = request.add_inputs();
    input->set_name("x");
    input->set_datatype("FP32");
    input->add_shape(elements);
    request.add_outputs()->set_name("y");
    request.add_raw_input_contents(
        std::string(static_cast<size_t>(elements) * sizeof(float), '\1'));
    return request.SerializeAsString();
  }

  static void AddInput(v1::EvaluateRequest* request) {
    v1::NamedTensor* const input = request->add_inputs();
    input->set_name("x");
    input->mutable_value()->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT);
    input->mutable_value()->mutable_spec()->add_shape(16);
    input->mutable_value()->set_raw(std::string(16 * sizeof(float), '\1'));
  }

  const testing::ModelFolder folder_;
  const ServerOptions options_;
  const std::unique_ptr<OpRegistry> registry_ = MakeOpRegistry({});
  Engines engines_;
  Engine* const engine_;
  const std::unique_ptr<ModelRepository> models_;
  Admission admission_{100, size_t{1} << 30};
  Metrics metrics_;
  ModelMetrics of_models_{&metrics_};
  Readiness readiness_;
  FairThreads long_steps_{1};
  EvaluationPool evaluations_;
  ServiceContext context_;
  EvaluatorService evaluator_;
  KserveInferService kserve_;
  MethodTable table_;
};

TEST_P(AllocationsTest, ModelInferOfAFewBytes) {
  ExpectNone("ModelInfer", Infer(16));
}

// Its output is lent to the reply.
TEST_P(AllocationsTest, ModelInferOfMore) {
  ExpectNone("ModelInfer", Infer(4096));
}

TEST_P(AllocationsTest, EvaluateOfAModel) {
  v1::EvaluateRequest request;
  request.mutable_graph()->mutable_model()->set_name("copy");
  AddInput(&request);
  ExpectNone("Evaluate", request.SerializeAsString());
}

TEST_P(AllocationsTest, EvaluateOfAGraph) {
  v1::EvaluateRequest request;
  v1::GraphDefinition* const graph =
      request.mutable_graph()->mutable_definition();
  graph->add_inputs()->set_name("x");
  v1::Node* const node = graph->add_nodes();
  node->set_op("Neg");
  node->add_inputs("x");
  node->add_outputs("y");
  graph->add_outputs("y");
  AddInput(&request);
  ExpectNone("Evaluate", request.SerializeAsString());
}

INSTANTIATE_TEST_SUITE_P(Works, AllocationsTest, ::testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "InTheThread" : "OnAWorker";
                         });

}  // namespace
}  // namespace weir
