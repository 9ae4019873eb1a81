#include "kernels/graph/plan_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/hash/hash.h"
#include "kernels/base/holders.h"
#include "kernels/graph/node_inference.h"

namespace weir {
namespace {

// Raw bytes, eight to a word.
void AppendElements(const HostTensor& input, size_t bytes, PlanKey* key) {
  const size_t words = (bytes + sizeof(int64_t) - 1) / sizeof(int64_t);
  const size_t at = key->size();
  key->resize(at + words, 0);
  if (bytes > 0) std::memcpy(key->data() + at, input.data, bytes);
}

}  // namespace

bool MakePlanKey(const ProgramCore& core, absl::Span<const HostTensor> inputs,
                 PlanKeyBudget budget, PlanKey* key) {
  if (inputs.size() != core.inputs.size()) return false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (key->size() > budget.words) return false;
    const HostTensor& input = inputs[i];
    if (input.dtype != core.inputs[i].dtype) return false;
    key->push_back(static_cast<int64_t>(input.dims.size()));
    key->insert(key->end(), input.dims.begin(), input.dims.end());
    const InputUse& use = core.input_uses[i];
    if (!use.on_host()) continue;
    if (use.elements) {
      const auto count = NumElements(input.dims);
      if (!count.ok() || *count > static_cast<int64_t>(kMaxHostInts)) {
        return false;
      }
      AppendElements(input, static_cast<size_t>(*count) * SizeOf(input.dtype),
                     key);
    }
    for (const InputUse::Digest& digest : use.digests) {
      if (!ByteSize(input.dtype, input.dims).ok()) return false;
      const auto ints =
          HostIntsOf(core.graph.nodes[static_cast<size_t>(digest.node)],
                     digest.input, input, budget.digests);
      if (!ints.ok()) return false;
      key->push_back(static_cast<int64_t>(ints->size()));
      key->insert(key->end(), ints->begin(), ints->end());
    }
  }
  return key->size() <= budget.words;
}

PlanCache::PlanCache(size_t max_plans, size_t max_bytes,
                     std::shared_ptr<ByteAccount> account)
    : max_plans_(std::max<size_t>(max_plans, 1)),
      max_bytes_(max_bytes),
      account_(std::move(account)),
      entries_(std::make_shared<const Entries>()) {}

uint64_t PlanCache::Hash(const PlanKey& key) {
  return absl::HashOf(absl::MakeConstSpan(key));
}

const PlanCache::Entry* PlanCache::FindIn(const Entries& entries, uint64_t hash,
                                          const PlanKey& key) {
  for (const auto& entry : entries) {
    if (entry->hash == hash && entry->key == key) return entry.get();
  }
  return nullptr;
}

std::shared_ptr<const Plan> PlanCache::Find(const PlanKey& key) const {
  const uint64_t hash = Hash(key);
  const uint64_t now = age_.load(std::memory_order_relaxed);
  return entries_.Read(
      [&](const Entries& entries) -> std::shared_ptr<const Plan> {
        const Entry* entry = FindIn(entries, hash, key);
        if (entry == nullptr) return nullptr;
        if (entry->used.load(std::memory_order_relaxed) != now) {
          entry->used.store(now, std::memory_order_relaxed);
        }
        return entry->plan;
      });
}

std::shared_ptr<const Plan> PlanCache::Insert(
    const PlanKey& key, std::shared_ptr<const Plan> plan) {
  auto entry = std::make_shared<Entry>();
  entry->hash = Hash(key);
  entry->key = key;
  entry->plan = std::move(plan);
  const size_t key_bytes = key.size() * sizeof(int64_t);
  entry->bytes = key_bytes + entry->plan->held_bytes();
  if (entry->bytes > max_bytes_) return entry->plan;
  MutexLock lock(&insert_mu_);
  auto entries = std::make_shared<Entries>(*entries_.Load());
  if (const Entry* same = FindIn(*entries, entry->hash, key)) {
    return same->plan;
  }
  // A hit from now on makes an entry younger than this one.
  entry->used = age_.fetch_add(1, std::memory_order_relaxed);
  size_t bytes = entry->bytes;
  for (const auto& other : *entries) bytes += other->bytes;
  while (entries->size() >= max_plans_ || bytes > max_bytes_) {
    const auto oldest = std::min_element(
        entries->begin(), entries->end(), [](const auto& a, const auto& b) {
          return a->used.load(std::memory_order_relaxed) <
                 b->used.load(std::memory_order_relaxed);
        });
    bytes -= (*oldest)->bytes;
    entries->erase(oldest);
  }
  entry->charge = ByteCharge(account_, key_bytes);
  std::shared_ptr<const Plan> result = entry->plan;
  entries->push_back(std::move(entry));
  entries_.Store(std::move(entries));
  return result;
}

bool PlanCache::DropIdle() {
  std::shared_ptr<const Entry> dropped;  // ends without the lock
  MutexLock lock(&insert_mu_);
  auto entries = std::make_shared<Entries>(*entries_.Load());
  auto oldest = entries->end();
  for (auto it = entries->begin(); it != entries->end(); ++it) {
    if (HeldByOthers((*it)->plan)) continue;
    if (oldest == entries->end() ||
        (*it)->used.load(std::memory_order_relaxed) <
            (*oldest)->used.load(std::memory_order_relaxed)) {
      oldest = it;
    }
  }
  if (oldest == entries->end()) return false;
  dropped = std::move(*oldest);
  entries->erase(oldest);
  entries_.Store(std::move(entries));
  return true;
}

PlanCache::Use PlanCache::use() const {
  return entries_.Read([](const Entries& entries) {
    Use use;
    use.plans = entries.size();
    for (const auto& entry : entries) {
      if (HeldByOthers(entry->plan)) use.held = true;
    }
    return use;
  });
}

}  // namespace weir
