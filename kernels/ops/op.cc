#include "kernels/ops/op.h"

#include <cstdlib>
#include <utility>

namespace weir {
namespace {

template <typename T>
T Get(const Attributes& attributes, std::string_view name, T fallback) {
  const AttributeValue* value = attributes.Find(name);
  if (value == nullptr) return fallback;
  const T* typed = std::get_if<T>(value);
  return typed == nullptr ? fallback : *typed;
}

class FunctionPlan final : public KernelPlan {
 public:
  explicit FunctionPlan(PlannedRun planned) : planned_(std::move(planned)) {}
  size_t scratch_bytes() const override { return planned_.scratch_bytes; }
  size_t held_bytes() const override {
    size_t bytes = planned_.held_bytes;
    for (const SharedHold& hold : planned_.shared_holds) bytes += hold.bytes;
    return bytes;
  }
  std::vector<SharedHold> shared_holds() const override {
    return planned_.shared_holds;
  }
  size_t launches() const override { return planned_.launches; }
  bool computes_on_host() const override { return planned_.computes_on_host; }
  absl::Status Run(const RunArgs& args) const override {
    return planned_.run(args);
  }

 private:
  const PlannedRun planned_;
};

class FunctionKernel final : public Kernel {
 public:
  explicit FunctionKernel(PlanFunction plan) : plan_(std::move(plan)) {}
  absl::StatusOr<std::unique_ptr<const KernelPlan>> Plan(
      const PlanArgs& args) const override {
    auto planned = plan_(args);
    if (!planned.ok()) return planned.status();
    return MakePlan(*std::move(planned));
  }

 private:
  const PlanFunction plan_;
};

}  // namespace

void Attributes::Set(std::string name, AttributeValue value) {
  values_.emplace_back(std::move(name), std::move(value));
}

const AttributeValue* Attributes::Find(std::string_view name) const {
  for (const auto& [key, value] : values_) {
    if (key == name) return &value;
  }
  return nullptr;
}

int64_t Attributes::Int(std::string_view name, int64_t fallback) const {
  return Get<int64_t>(*this, name, fallback);
}

float Attributes::Float(std::string_view name, float fallback) const {
  return Get<float>(*this, name, fallback);
}

std::string Attributes::String(std::string_view name,
                               std::string_view fallback) const {
  return Get<std::string>(*this, name, std::string(fallback));
}

std::vector<int64_t> Attributes::Ints(std::string_view name) const {
  return Get<std::vector<int64_t>>(*this, name, {});
}

std::vector<float> Attributes::Floats(std::string_view name) const {
  return Get<std::vector<float>>(*this, name, {});
}

std::vector<std::string> Attributes::Strings(std::string_view name) const {
  return Get<std::vector<std::string>>(*this, name, {});
}

std::shared_ptr<const Constant> Attributes::Tensor(
    std::string_view name) const {
  return Get<std::shared_ptr<const Constant>>(*this, name, nullptr);
}

std::unique_ptr<const KernelPlan> MakePlan(PlannedRun planned) {
  return std::make_unique<const FunctionPlan>(std::move(planned));
}

std::unique_ptr<const Kernel> MakeKernel(PlanFunction plan) {
  return std::make_unique<const FunctionKernel>(std::move(plan));
}

}  // namespace weir
