#include "server/services/call_evaluation.h"

#include <algorithm>
#include <atomic>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/saturating.h"

namespace weir {
namespace {

constexpr size_t kMaxFree = 256;  // per I/O thread
// Inputs and outputs of a graph above which an evaluation is not kept: a burst
// would leave lists of them behind for good.
constexpr size_t kMaxKept = 64;

using FreeList = std::vector<std::unique_ptr<CallEvaluation>>;

// Calls stay on their I/O thread, and so do these. One list per engine.
FreeList& FreeListOf(const Engine& engine) {
  thread_local std::vector<std::pair<const Engine*, FreeList>> lists;
  for (auto& [of, list] : lists) {
    if (of == &engine) return list;
  }
  return lists.emplace_back(&engine, FreeList()).second;
}

RngState FreshRng() {
  std::random_device device;
  return {.seed = (uint64_t{device()} << 32) | device()};
}

struct SharedResults {
  std::atomic<int> references;
  PinnedBuffer::Block* block;
};

}  // namespace

CallEvaluation* CallEvaluation::Acquire(Engine& engine, Metrics& metrics) {
  FreeList& free = FreeListOf(engine);
  CallEvaluation* evaluation = nullptr;
  if (free.empty()) {
    evaluation = new CallEvaluation(engine);
  } else {
    evaluation = free.back().release();
    free.pop_back();
  }
  evaluation->metrics_ = &metrics;
  return evaluation;
}

void CallEvaluation::Release(CallEvaluation* evaluation) {
  // What no reply took.
  evaluation->results_.Reset();
  evaluation->work_.TakeOutputBuffer().Reset();
  evaluation->work_.DropProgram();
  WorkRequest& request = evaluation->work_.request;
  // Its lists keep their memory for the next use.
  const bool small = request.inputs.size() + request.outputs.size() <= kMaxKept;
  request.inputs.clear();
  request.outputs.clear();
  request.mode.reset();
  request.seed.reset();
  request.label.clear();
  evaluation->call_ = nullptr;
  std::unique_ptr<CallEvaluation> owned(evaluation);
  FreeList& free = FreeListOf(*evaluation->engine_);
  if (small && free.size() < kMaxFree) free.push_back(std::move(owned));
}

CallEvaluation::CallEvaluation(Engine& engine) : engine_(&engine) {
  ContextOptions options;
  options.executor = this;
  options.rng = FreshRng();
  context_ = EvalContext::Create(&engine, options);
}

CallEvaluation::~CallEvaluation() = default;

void CallEvaluation::Start(ServerCall& call, FinishFn finish, void* arg) {
  call_ = &call;
  finish_ = finish;
  finish_arg_ = arg;
  io_thread_ = std::this_thread::get_id();
  work_.request.deadline = call.deadline();
  {
    MutexLock lock(&mu_);
    active_ = true;
    busy_ = true;
    done_ = false;
  }
  {
    // The context is this object's own: nobody else can be in it.
    absl::StatusOr<Activation> activation = context_->Enter(NewHandlerId());
    activation->Submit(&work_, this);
  }
  call.OnCancel(
      [](ServerCall&, void* self) {
        static_cast<CallEvaluation*>(self)->work_.Cancel();
      },
      this);
  TryFinish();
}

// On the I/O thread, with busy_ set. True if the call was answered.
bool CallEvaluation::TryFinish() {
  {
    MutexLock lock(&mu_);
    busy_ = false;
    if (!done_) return false;
    // A Resume that is on its way must find the call unanswered.
    if (woken_) return false;
    active_ = false;
    tasks_.clear();
  }
  RecordStages();
  finish_(*this, finish_arg_);
  return true;
}

void CallEvaluation::RecordStages() {
  const SyncReport& report = work_.report();
  StageTimes times;
  if (report.ready_at != 0) times.queue = report.ready_at - call_->received();
  if (report.leased_at != 0) times.lane = report.leased_at - report.ready_at;
  if (report.launched_at != 0) {
    times.compute = report.completed_at - report.launched_at;
  }
  metrics_->RecordStages(times);
}

// Of text the lengths alone are known.
absl::Status CallEvaluation::OnPlanned(Work& work) {
  const auto& outputs = work.plan()->outputs();
  return CheckOutputs([&](size_t i) {
    const TensorMeta& meta = outputs[i].meta;
    return meta.dtype == DType::kString
               ? static_cast<size_t>(meta.elements) * sizeof(uint32_t)
               : meta.bytes;
  });
}

absl::Status CallEvaluation::CheckOutputs(
    absl::FunctionRef<size_t(size_t i)> bytes_of) const {
  const auto& wishes = work_.request.outputs;
  int64_t all = 0;
  int64_t most = -1;
  size_t largest = 0;
  for (size_t i = 0; i < wishes.size(); ++i) {
    if (wishes[i] != OutputWish::kInline) continue;
    const int64_t bytes = static_cast<int64_t>(bytes_of(i));
    all = SaturatingAdd(all, bytes);
    if (bytes > most) largest = i;
    most = std::max(most, bytes);
  }
  absl::Status fits = call_->CheckReplySize(static_cast<size_t>(all));
  if (fits.ok()) return fits;
  return Annotate(
      fits,
      absl::StrCat("output \"", work_.request.program->outputs()[largest].name,
                   "\" has ", most, " bytes: "));
}

void CallEvaluation::OnDone(Work&) {
  MutexLock lock(&mu_);
  done_ = true;
  if (busy_ && std::this_thread::get_id() == io_thread_) return;
  WakeLocked();
}

void CallEvaluation::Post(Task task) {
  MutexLock lock(&mu_);
  // After the answer there is no work left that a task could move on.
  if (!active_) return;
  tasks_.push_back(std::move(task));
  WakeLocked();
}

void CallEvaluation::WakeLocked() {
  if (woken_) return;
  woken_ = true;
  call_->Resume(
      [](ServerCall&, void* self) {
        static_cast<CallEvaluation*>(self)->OnWake();
      },
      this);
}

void CallEvaluation::OnWake() {
  {
    MutexLock lock(&mu_);
    // Only here: what wakes us from now on has sent another Resume, which
    // TryFinish waits for.
    woken_ = false;
    busy_ = true;
  }
  while (true) {
    Task task;
    {
      MutexLock lock(&mu_);
      if (tasks_.empty()) break;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
  TryFinish();
}

size_t CallEvaluation::result_bytes() {
  if (results_.empty()) results_ = work_.TakeOutputBuffer();
  return results_.capacity();
}

CallEvaluation::Results CallEvaluation::ShareResults(int count) {
  if (results_.empty()) results_ = work_.TakeOutputBuffer();
  if (count == 1) {
    return {[](void* block) {
              PinnedBuffer::Return(static_cast<PinnedBuffer::Block*>(block));
            },
            results_.Release()};
  }
  auto* shared = new SharedResults{{count}, results_.Release()};
  return {[](void* arg) {
            auto* results = static_cast<SharedResults*>(arg);
            if (results->references.fetch_sub(1) > 1) return;
            PinnedBuffer::Return(results->block);
            delete results;
          },
          shared};
}

}  // namespace weir
