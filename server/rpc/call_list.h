// Calls in the order in which they entered, linked through themselves: entering
// and leaving cost nothing. A call is in one list at a time. Used by one
// thread, except for published_size().
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "kernels/base/clock.h"

namespace weir {

class CallList;

// What a call is in a list by.
class CallLink {
 public:
  CallLink() = default;
  CallLink(const CallLink&) = delete;
  CallLink& operator=(const CallLink&) = delete;

  bool linked() const { return list_ != nullptr; }
  // When it entered, or what became of that in PutOff.
  Nanos since() const { return since_; }
  // The one that entered next.
  CallLink* after() const { return after_; }

 private:
  friend class CallList;
  CallList* list_ = nullptr;
  CallLink* before_ = nullptr;
  CallLink* after_ = nullptr;
  Nanos since_ = 0;
};

class CallList {
 public:
  CallList() = default;
  CallList(const CallList&) = delete;
  CallList& operator=(const CallList&) = delete;

  // `now` never goes back. REQUIRES: in no list.
  void Enter(CallLink* link, Nanos now) {
    link->list_ = this;
    link->since_ = now;
    link->before_ = newest_;
    link->after_ = nullptr;
    (newest_ == nullptr ? oldest_ : newest_->after_) = link;
    newest_ = link;
    ++size_;
  }

  // Nothing happens to one that is in no list.
  static void Leave(CallLink* link) {
    CallList* const list = link->list_;
    if (list == nullptr) return;
    link->list_ = nullptr;
    (link->before_ == nullptr ? list->oldest_ : link->before_->after_) =
        link->after_;
    (link->after_ == nullptr ? list->newest_ : link->after_->before_) =
        link->before_;
    --list->size_;
  }

  // What is in it waited for nobody between `from` and `to`, which is now: that
  // is taken out of the time since it entered.
  void PutOff(Nanos from, Nanos to) {
    for (CallLink* link = oldest_; link != nullptr; link = link->after_) {
      link->since_ += to - std::max(from, link->since_);
    }
  }

  CallLink* oldest() const { return oldest_; }
  CallLink* newest() const { return newest_; }
  bool empty() const { return oldest_ == nullptr; }
  size_t size() const { return size_; }

  void PublishSize() {
    if (published_.load(std::memory_order_relaxed) == size_) return;
    published_.store(size_, std::memory_order_release);
  }
  // As it was then. Any thread.
  size_t published_size() const {
    return published_.load(std::memory_order_acquire);
  }

 private:
  CallLink* oldest_ = nullptr;
  CallLink* newest_ = nullptr;
  size_t size_ = 0;
  std::atomic<size_t> published_{0};
};

}  // namespace weir
