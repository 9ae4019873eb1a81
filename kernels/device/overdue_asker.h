// Asks a device's driver about streams whose work is overdue, on a thread of
// its own: after a fault the driver takes its time to answer, and those who see
// completions must not wait for it. Owned by the CompletionMonitor.
#pragma once

#include <memory>

#include "kernels/base/mutex.h"
#include "kernels/base/thread.h"
#include "kernels/device/health.h"

namespace weir {

struct MonitoredStream;
struct MonitorHooks;

class OverdueAsker {
 public:
  // A failed query poisons `health`. Both outlive the asker.
  OverdueAsker(DeviceHealth* health, const MonitorHooks* hooks);
  // Waits for the answer to a question that was asked.
  ~OverdueAsker();
  OverdueAsker(const OverdueAsker&) = delete;
  OverdueAsker& operator=(const OverdueAsker&) = delete;

  // Soon asks for `stream`. False, and nothing happens, while an earlier
  // question is not answered.
  bool Ask(const std::shared_ptr<MonitoredStream>& stream);

 private:
  void Run();

  DeviceHealth* const health_;
  const MonitorHooks* const hooks_;
  Mutex mu_;
  CondVar asked_;
  bool stopping_ WEIR_GUARDED_BY(mu_) = false;
  // The question; kept until it is answered.
  std::shared_ptr<MonitoredStream> question_ WEIR_GUARDED_BY(mu_);
  Thread thread_;
};

}  // namespace weir
