#include "server/health.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weir {

bool Health::Set(Unready cause, std::string why) {
  MutexLock lock(&mu_);
  return SetLocked(cause, std::move(why));
}

bool Health::SetLocked(Unready cause, std::string why) {
  const bool changes = readiness_.Set(cause, std::move(why));
  if (changes) Publish();
  return changes;
}

void Health::Tell(Transport* transport, const ModelRepository* models,
                  std::set<std::string> services) {
  MutexLock lock(&mu_);
  transport_ = transport;
  models_ = models;
  services_ = std::move(services);
  Publish();
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
        Set(Unready::kLost, why(cause));
        told(device->status());
      }));
}

void Health::SetStall(size_t device, std::string why) {
  MutexLock lock(&mu_);
  stalls_[device] = std::move(why);
  const auto first =
      std::find_if(stalls_.begin(), stalls_.end(),
                   [](const std::string& why) { return !why.empty(); });
  SetLocked(Unready::kStalled, first == stalls_.end() ? "" : *first);
}

void Health::Unfollow() { watches_.clear(); }

void Health::Publish() {
  if (transport_ == nullptr) return;
  transport_->SetServing("live", readiness_.fault().empty());
  const bool ready = readiness_.ready();
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
