// A unary call that is answered with the outputs of one evaluation: what
// Evaluate and ModelInfer do alike, between their message and its answer. A
// service derives from it what its message says, and how its answer is written.
//
// Lives in the call's arena, from the handler's entry to the answer, which
// destroys it. Used on the call's I/O thread; Read, binding (RequestTensors)
// and Write run on another one if they take long (long_step.h).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/eval/work.h"
#include "server/bytes/arena_ptr.h"
#include "server/evaluation/binding.h"
#include "server/evaluation/evaluation.h"
#include "server/evaluation/evaluation_pool.h"
#include "server/evaluation/reply_room.h"
#include "server/evaluation/result_bytes.h"
#include "server/rpc/server_call.h"
#include "server/services/report_proto.h"
#include "server/services/service_context.h"
#include "server/services/space_evaluation.h"

namespace weir {

class EvaluationCall : protected RequestTensors,
                       protected ReplyRoom,
                       private EvaluationClient {
 public:
  // Handles `call` by a T, which is made of the same two.
  template <typename T>
  static void Handle(ServiceContext* context, ServerCall& call) {
    Begin(MakeInArena<T>(&call.arena(), context, call));
  }

  virtual ~EvaluationCall();
  EvaluationCall(const EvaluationCall&) = delete;
  EvaluationCall& operator=(const EvaluationCall&) = delete;

 protected:
  EvaluationCall(ServiceContext* context, ServerCall& call);

  // Reads and checks the message.
  virtual absl::Status Read() = 0;
  // Finds what it wants to run: calls Evaluate or Fail, at once or later.
  virtual void FindProgram() = 0;
  // The answer, made of `outputs` of the done work; in a space also of a work
  // that has returned, and then `bytes` has none of them.
  virtual absl::StatusOr<ReplyBuffer> Write(std::span<const size_t> outputs,
                                            ResultBytes& bytes) = 0;
  // An error of the call in the words of its message.
  virtual absl::Status InItsWords(const absl::Status& error) const {
    return error;
  }
  // How its tensors travel.
  virtual v1::Transfers::Transport transport() const {
    return v1::Transfers::TRANSPORT_INLINE;
  }
  // What else an error says once there is a report, whether the work failed or
  // what becomes of its results does.
  virtual void Describe(absl::Status*) const {}

  struct Settings {
    EvalMode mode = EvalMode::kSyncFull;
    std::optional<uint64_t> seed = {};
    int cpu_threads = 0;
    std::string_view label = {};
  };
  // Whose counts the call goes to, and whose shapes its tensors have to have;
  // before Evaluate. Without one, none.
  void set_model(std::shared_ptr<const ServedModel> model) {
    model_ = std::move(model);
  }
  const ServedModel* model() const { return model_.get(); }
  const std::shared_ptr<const ServedModel>& shared_model() const {
    return model_;
  }
  // Runs `program`, which is the model's if there is one, and answers.
  void Evaluate(std::shared_ptr<const Program> program,
                const Settings& settings);
  // The same in a space, on the engine of `program`: answers as the mode says,
  // or with the outputs that are wanted inline. RESOURCE_EXHAUSTED fails it.
  void EvaluateIn(const SpacePlace& place,
                  std::shared_ptr<const Program> program,
                  const Settings& settings);
  // Its work, once EvaluateIn was called; null without a space.
  SpaceWork* space_work() const {
    return in_space_ == nullptr ? nullptr : &in_space_->space_work();
  }
  // Adds what the request wants beside its tensors, once these are bound, by a
  // thread that may read the message.
  virtual absl::Status WasBoundTo(std::span<const size_t> /*outputs*/) {
    return absl::OkStatus();
  }
  void Fail(const absl::Status& error);

  ServiceContext& context() const { return *context_; }
  ServerCall& call() const { return call_; }
  // From Evaluate or EvaluateIn on.
  const Program& program() const { return *work().request.program; }
  // In a space it may go on meanwhile: then its mode, seed (and where that was
  // drawn) and request alone may be asked for.
  const Work& work() const {
    return in_space_ == nullptr ? evaluation_->work() : in_space_->work();
  }
  // What was known when there was something to answer.
  const SyncReport& report() const {
    return in_space_ == nullptr ? work().report() : in_space_->report();
  }
  // Null if it was not made by then.
  const Plan* plan() const {
    return in_space_ == nullptr ? work().plan().get() : in_space_->plan();
  }
  ReportFrame Frame(bool full) const;

 private:
  static void Begin(ArenaPtr<EvaluationCall> self);
  void WasRead(absl::Status status);
  absl::Status Bind();
  void WasBound(absl::Status status);
  WorkRequest& request() {
    return in_space_ == nullptr ? evaluation_->request()
                                : in_space_->space_work().request();
  }
  void Begin(std::shared_ptr<const Program> program, const Settings& settings);
  void Returned(absl::Status status);
  void Answer();
  std::span<const size_t> InlineOutputs();
  absl::Status WriteReply();
  void WasWritten(absl::Status status);
  void FailDescribed(absl::Status error);
  void End(absl::StatusCode code);

  // ReplyRoom.
  absl::Status CheckReply(size_t bytes) const override;
  absl::Status ChargeReply(size_t bytes) override;
  // EvaluationClient, on the call's I/O thread.
  void Wake(Evaluation& evaluation) override;
  absl::Status Planned(const Work& work) override;
  void Launched() override;
  void Submitted() override;
  void Done() override;

  ServiceContext* const context_;
  ServerCall& call_;
  ArenaPtr<EvaluationCall> self_;  // until the answer
  std::shared_ptr<const ServedModel> model_;
  // One of the two, from Evaluate or EvaluateIn on.
  EvaluationPool::Lease evaluation_;
  std::unique_ptr<SpaceEvaluation> in_space_;
  Binding binding_;
  std::optional<ResultBytes> bytes_;  // once it is done
  ReplyBuffer reply_;
};

}  // namespace weir
