#include "server/spaces/kept_context.h"

namespace weir {

ContextSettings KeptContext::settings() const {
  MutexLock lock(&mu_);
  return settings_;
}

void KeptContext::set_settings(const ContextSettings& settings) {
  MutexLock lock(&mu_);
  settings_ = settings;
}

void KeptContext::Touch(Nanos now) {
  MutexLock lock(&mu_);
  if (unused_since_.has_value()) unused_since_ = now;
}

bool KeptContext::Expired(Nanos now) {
  const bool used = context_->owner() != 0 || context_->unfinished() > 0 ||
                    context_->deferred() > 0;
  MutexLock lock(&mu_);
  if (used || settings_.ttl == 0) {
    unused_since_.reset();
    return false;
  }
  if (!unused_since_.has_value()) unused_since_ = now;
  return now - *unused_since_ >= settings_.ttl;
}

}  // namespace weir
