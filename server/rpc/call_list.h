// Calls in the order in which they entered, linked through themselves: entering
// and leaving cost nothing. A call is in one list at a time. Used by one
// thread, except for size().
#pragma once

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
  // When it entered.
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
    size_.store(size() + 1, std::memory_order_relaxed);
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
    list->size_.store(list->size() - 1, std::memory_order_relaxed);
  }

  CallLink* oldest() const { return oldest_; }
  bool empty() const { return oldest_ == nullptr; }
  // Any thread.
  size_t size() const { return size_.load(std::memory_order_relaxed); }

 private:
  CallLink* oldest_ = nullptr;
  CallLink* newest_ = nullptr;
  std::atomic<size_t> size_{0};
};

}  // namespace weir
