// What a work does on its stream, and how it judges what came of it.
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/numbers.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/bounded_team.h"
#include "kernels/eval/eval_context.h"
#include "kernels/eval/work.h"

namespace weir {
namespace {

// Of what a kernel found, by its reason: a status of its own has no number.
int32_t FaultNumber(std::string_view reason) {
  for (uint32_t code = 1;; ++code) {
    const std::string known = Reason(FaultStatus(static_cast<FaultCode>(code)));
    if (known.empty()) return 0;  // beyond the last one
    if (known == reason) return static_cast<int32_t>(code);
  }
}

}  // namespace

absl::Status Work::Launch(Stream& stream) {
  Device& device = stream.device();
  const bool host_addressable = device.host_addressable();
  // A CPU's strand has looked at the clock just now.
  report_.launched_at =
      completion.launched_at != 0 ? completion.launched_at : NowNanos();
  report_.sequence = completion.sequence;
  // The strand may have held it for long, and runs it in this thread.
  const auto still_wanted = [this] { return StillWanted(); };
  std::optional<absl::FunctionRef<absl::Status()>> go_on;
  if (host_addressable) {
    WEIR_RETURN_IF_ERROR(WantedBefore("its next step", report_.launched_at));
    go_on.emplace(still_wanted);
  }
  const auto make_room = [&still_wanted, &stream] {
    absl::Status status = still_wanted();
    return status.ok() ? stream.WaitForRoom(still_wanted) : status;
  };
  std::optional<absl::FunctionRef<absl::Status()>> pace;
  if (pace_launches_ > 0) {
    pace.emplace(make_room);
    go_on.emplace(still_wanted);
  }
  WEIR_RETURN_IF_ERROR(dependencies_.WaitOn(stream));
  if (host_addressable) {
    // Everything is reached: on what a failed work left nothing is run.
    WEIR_RETURN_IF_ERROR(dependencies_.Outcome().value_or(absl::OkStatus()));
  }
  WEIR_RETURN_IF_ERROR(memory_.CopyIn(stream));
  CpuTeam* team = device.cpu_team();
  std::optional<BoundedTeam> some;
  if (team != nullptr && request.cpu_threads > 0) {
    team = &some.emplace(team, request.cpu_threads);
  }
  const ProgramRun run{.stream = stream,
                       .team = team,
                       .inputs = memory_.inputs(),
                       .outputs = memory_.outputs(),
                       .arena = memory_.arena(),
                       .random = {.seed = seed_},
                       .go_on = go_on,
                       .pace = pace,
                       .pace_launches = pace_launches_};
  WEIR_RETURN_IF_ERROR(plan_->Run(run));
  WEIR_RETURN_IF_ERROR(memory_.CopyOut(run));
  Advance(WorkState::kScheduled);
  if (return_at_ <= WorkState::kScheduled) Return();
  return absl::OkStatus();
}

// In what a failed work left behind a kernel may find whatever fault: that work
// is to blame.
std::optional<absl::Status> Work::Settle(const Completion& done) {
  const bool faulty = done.fault != FaultCode::kNone;
  // Whoever depends on it is told what it is told itself.
  if (!done.status.ok() && !faulty) return WithCallSite(done.status);
  std::optional<absl::Status> inherited = dependencies_.Outcome();
  if (!faulty || inherited != absl::OkStatus()) return inherited;
  return WithCallSite(plan_->FaultAt(done.fault_node, done.fault));
}

void Work::NoteDeviceError(const absl::Status& status, bool sticky) {
  DeviceError error;
  error.text = std::string(status.message());
  error.name = Reason(status);
  error.code = FaultNumber(error.name);
  // What a call of the backend's own said.
  for (const auto& [key, value] : Metadata(status)) {
    if (key == "name") error.name = value;
    if (key == "code") (void)absl::SimpleAtoi(value, &error.code);
  }
  error.sticky = sticky;
  error.node = NodeAtFault(status);
  report_.device_errors.push_back(std::move(error));
}

void Work::Complete(const Completion& done) {
  report_.completed_at = done.completed_at;
  report_.sequence = done.sequence;
  absl::Status status = done.outcome;
  if (!done.status.ok() && !GaveUp(status) && !IsInherited(status)) {
    NoteDeviceError(status, absl::IsUnavailable(done.status));
  }
  if (return_at_ == WorkState::kCompleted) report_.wait = WaitKind::kRecord;
  if (status.ok() && !waits_apart_) {
    plan_->RecordDuration(done.completed_at - done.started_at,
                          done.device_time);
  }
  End(std::move(status), /*launched=*/true);
}

}  // namespace weir
