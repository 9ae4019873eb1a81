#include "server/health.h"

#include <utility>

namespace weir {

Health::Health(Readiness* readiness, const ModelRepository* models,
               Transport* transport, std::set<std::string> services)
    : readiness_(readiness),
      models_(models),
      transport_(transport),
      services_(std::move(services)) {
  MutexLock lock(&mu_);
  Publish();
}

void Health::Set(Unready cause, std::string why) {
  MutexLock lock(&mu_);
  readiness_->Set(cause, std::move(why));
  Publish();
}

void Health::SetLive(bool live) {
  MutexLock lock(&mu_);
  transport_->SetServing("live", live);
}

void Health::Publish() {
  const bool ready = readiness_->ready();
  // A refused model is known and not served, unless another version is.
  for (const ModelIndexEntry& entry : models_->Index()) {
    transport_->SetServing("model/" + entry.name,
                           ready && models_->Find(entry.name, "").ok());
  }
  for (const std::string& service : services_) {
    transport_->SetServing(service, ready);
  }
  transport_->SetServing("", ready);
}

}  // namespace weir
