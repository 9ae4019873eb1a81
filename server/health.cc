#include "server/health.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

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
                    std::function<void(const absl::Status&)> told,
                    const std::string& name) {
  const auto why = [name](const absl::Status& status) -> std::string {
    if (status.ok()) return "";
    return absl::StrCat(name, name.empty() ? "" : ": ", status.message());
  };
  size_t place = 0;
  {
    MutexLock lock(&mu_);
    place = stalls_.size();
    stalls_.emplace_back();
  }
  watches_.push_back(
      device->OnStall([this, place, told, why](const absl::Status& stall) {
        SetStall(place, why(stall));
        told(stall);
      }));
  watches_.push_back(
      device->OnPoisoned([this, device, told, why](const absl::Status& cause) {
        SetFault(Fault::kDeviceLost, why(cause));
        told(device->status());
      }));
}

void Health::SetStall(size_t device, std::string why) {
  MutexLock lock(&mu_);
  stalls_[device] = std::move(why);
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
