#include "server/scheduling/fair_threads.h"

#include <pthread.h>

#include <algorithm>

namespace weir {
namespace {

constexpr size_t kFewest = 2;
constexpr size_t kMost = 8;
// What else runs needs CPUs too.
constexpr size_t kShare = 4;

}  // namespace

size_t FairThreads::DefaultThreads(int cpus) {
  return std::clamp(static_cast<size_t>(cpus) / kShare, kFewest, kMost);
}

FairThreads::FairThreads(size_t threads) : count_(std::max(threads, kFewest)) {
  while (threads_.size() < count_) {
    threads_.emplace_back([this] { Run(); });
    pthread_setname_np(threads_.back().native_handle(), "weir-steps");
  }
}

FairThreads::~FairThreads() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    posted_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void FairThreads::Post(std::string peer, Task task) {
  MutexLock lock(&mu_);
  Peers::value_type& entry = *peers_.try_emplace(std::move(peer)).first;
  entry.second.tasks.push_back(std::move(task));
  if (entry.second.tasks.size() == 1) turns_.push_back(&entry);
  ++waiting_;
  posted_.NotifyOne();
}

size_t FairThreads::waiting() const {
  MutexLock lock(&mu_);
  return waiting_;
}

FairThreads::Peers::value_type* FairThreads::Next() {
  const auto next = std::min_element(
      turns_.begin(), turns_.end(), [](const auto* one, const auto* other) {
        return one->second.running < other->second.running;
      });
  if (next == turns_.end()) return nullptr;
  Peers::value_type* const entry = *next;
  // While they stop nobody else comes.
  if (entry->second.running + 1 >= count_ && !stopping_) {
    return nullptr;
  }
  turns_.erase(next);
  return entry;
}

void FairThreads::Run() {
  mu_.Lock();
  while (true) {
    Peers::value_type* const entry = Next();
    if (entry == nullptr) {
      if (stopping_) break;
      posted_.Wait(&mu_);
      continue;
    }
    Peer& peer = entry->second;
    Task task = std::move(peer.tasks.front());
    peer.tasks.pop_front();
    if (!peer.tasks.empty()) turns_.push_back(entry);
    ++peer.running;
    --waiting_;
    mu_.Unlock();
    task();
    task = nullptr;
    mu_.Lock();
    --peer.running;
    if (peer.running == 0 && peer.tasks.empty()) peers_.erase(entry->first);
  }
  mu_.Unlock();
}

}  // namespace weir
