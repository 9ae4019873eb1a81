#include "server/health.h"

#include <algorithm>
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

void Health::SetFault(Fault cause, std::string why) {
  MutexLock lock(&mu_);
  readiness_->Set(
      cause == Fault::kDeviceLost ? Unready::kLost : Unready::kHangs, why);
  faults_[static_cast<size_t>(cause)] = std::move(why);
  Publish();
}

std::string Health::fault() const {
  MutexLock lock(&mu_);
  const auto first =
      std::find_if(faults_.begin(), faults_.end(),
                   [](const std::string& why) { return !why.empty(); });
  return first == faults_.end() ? "" : *first;
}

void Health::Follow(DeviceHealth* device,
                    std::function<void(const absl::Status&)> told) {
  size_t place = 0;
  {
    MutexLock lock(&mu_);
    place = stalls_.size();
    stalls_.emplace_back();
  }
  watches_.push_back(
      device->OnStall([this, place, told](const absl::Status& stall) {
        SetStall(place, stall);
        told(stall);
      }));
  watches_.push_back(
      device->OnPoisoned([this, device, told](const absl::Status& cause) {
        SetFault(Fault::kDeviceLost, std::string(cause.message()));
        told(device->status());
      }));
}

void Health::SetStall(size_t device, const absl::Status& stall) {
  MutexLock lock(&mu_);
  stalls_[device] = std::string(stall.message());
  const auto first =
      std::find_if(stalls_.begin(), stalls_.end(),
                   [](const std::string& why) { return !why.empty(); });
  readiness_->Set(Unready::kStalled, first == stalls_.end() ? "" : *first);
  Publish();
}

void Health::Unfollow() { watches_.clear(); }

void Health::Publish() {
  transport_->SetServing(
      "live", std::all_of(faults_.begin(), faults_.end(),
                          [](const std::string& why) { return why.empty(); }));
  const bool ready = readiness_->ready();
  if (!ready) transport_->SetServing("", false);
  // A refused model is known and not served, unless another version is.
  for (const ModelIndexEntry& entry : models_->Index()) {
    transport_->SetServing("model/" + entry.name,
                           ready && models_->Find(entry.name, "").ok());
  }
  for (const std::string& service : services_) {
    transport_->SetServing(service, ready);
  }
  if (ready) transport_->SetServing("", true);
}

}  // namespace weir
