// The token that Admin calls over TCP must carry, from --admin-token-file. The
// file is read at start, strictly, and looked at again every two seconds by a
// thread of this object: a secret that is renewed needs no restart. A file that
// holds no token then leaves the one of before in use. Matches from any thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/base/mutex.h"
#include "kernels/base/periodic_thread.h"

namespace weir {

class AdminToken {
 public:
  // Called on the watching thread: what was read, or why it was not.
  using ReportFn = std::function<void(bool renewed, const std::string& event)>;

  // An error names the flag, the file and the cause.
  static absl::StatusOr<std::unique_ptr<AdminToken>> Open(
      const std::string& path, ReportFn report,
      absl::Duration refresh = absl::Seconds(2));

  // Takes as long for a wrong token as for one that is nearly right.
  bool Matches(std::string_view given) const;

 private:
  AdminToken(std::string path, ReportFn report, std::string token)
      : path_(std::move(path)),
        report_(std::move(report)),
        token_(std::move(token)) {}

  void Look();

  const std::string path_;
  const ReportFn report_;
  std::string problem_;  // the watching thread's: what was reported last
  mutable Mutex mu_;
  std::string token_ WEIR_GUARDED_BY(mu_);
  std::optional<PeriodicThread> watcher_;
};

}  // namespace weir
