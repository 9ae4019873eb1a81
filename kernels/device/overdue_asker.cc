#include "kernels/device/overdue_asker.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/device/completion.h"

namespace weir {

OverdueAsker::OverdueAsker(DeviceHealth* health, const MonitorHooks* hooks)
    : health_(health),
      hooks_(hooks),
      thread_("weir-overdue", [this] { Run(); }) {}

OverdueAsker::~OverdueAsker() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    asked_.NotifyOne();
  }
  thread_.Join();
}

bool OverdueAsker::Ask(const std::shared_ptr<MonitoredStream>& stream) {
  MutexLock lock(&mu_);
  if (question_ != nullptr) return false;
  question_ = stream;
  asked_.NotifyOne();
  return true;
}

void OverdueAsker::Run() {
  for (;;) {
    std::shared_ptr<MonitoredStream> stream;
    {
      MutexLock lock(&mu_);
      while (question_ == nullptr && !stopping_) asked_.Wait(&mu_);
      if (stopping_) return;
      stream = question_;
    }
    const Nanos asked = NowNanos();
    const absl::Status status = stream->query();
    hooks_->Note([&] {
      return absl::StrCat(stream->timeline->name(),
                          " is overdue: the driver says \"",
                          status.ok() ? "running" : status.message(),
                          "\" after ", (NowNanos() - asked) / 1000, " us");
    });
    if (!status.ok()) health_->Poison(status);
    stream = nullptr;  // its last use may be this
    MutexLock lock(&mu_);
    question_ = nullptr;
  }
}

}  // namespace weir
