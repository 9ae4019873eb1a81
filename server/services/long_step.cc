#include "server/services/long_step.h"

#include <memory>

#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "kernels/base/error_info.h"

namespace weir {
namespace {

absl::Status WaitedTooLong() {
  return WithRetryAfter(
      WithReason(absl::DeadlineExceededError(
                     "the call waited longer than any may for its peer's turn "
                     "to have something large read or made; send less at a "
                     "time, or try again later"),
                 "STEP_WAIT_TOO_LONG"),
      absl::Seconds(1));
}

// From Start to End, which deletes it. What it has to say is said once: of the
// task, what runs instead, and whoever removes it, there is one.
class StepInTurn {
 public:
  StepInTurn(ServerCall& call, FairThreads& beside, const LongStep& step)
      : call_(call), beside_(beside), step_(step) {}

  void Start() {
    task_ = beside_.Post(
        call_.peer(), call_.deadline(),
        [this] {
          status_ = call_.StillWanted(NowNanos());
          if (status_.ok()) status_ = step_.work(step_.self);
          Resume();
        },
        [this] {
          status_ = call_.StillWanted(NowNanos());
          if (status_.ok()) status_ = WaitedTooLong();
          Resume();
        });
    call_.OnCancel(
        [](ServerCall&, void* self) {
          static_cast<StepInTurn*>(self)->CallerLeft();
        },
        this);
  }

 private:
  void Resume() {
    call_.Resume(
        [](ServerCall&, void* self) { static_cast<StepInTurn*>(self)->End(); },
        this);
  }

  void CallerLeft() {
    if (!beside_.Remove(task_)) return;  // it resumes the call
    status_ = call_.StillWanted(NowNanos());
    End();
  }

  void End() {
    const std::unique_ptr<StepInTurn> self(this);
    call_.ForgetCancel();
    step_.next(step_.self, std::move(status_));
  }

  ServerCall& call_;
  FairThreads& beside_;
  const LongStep step_;
  FairThreads::TaskId task_ = 0;  // the I/O thread's
  absl::Status status_;
};

}  // namespace

void StartLongStep(ServerCall& call, FairThreads& beside,
                   const LongStep& step) {
  (new StepInTurn(call, beside, step))->Start();
}

}  // namespace weir
