// What other threads want an I/O thread to run. Nodes belong to whoever posts
// them and must live until they ran. Inbox: Post from any thread without a
// lock; all else from the I/O thread only.
#pragma once

#include <atomic>

#include "kernels/base/thread.h"

namespace weir {

struct InboxNode {
  // Runs on the I/O thread. May free the node.
  void (*run)(InboxNode* node) = nullptr;
  InboxNode* next = nullptr;
};

// Nodes in the order they came. For one thread.
class NodeQueue {
 public:
  bool empty() const { return first_ == nullptr; }

  // Puts a chain of nodes, linked by `next`, behind the others.
  void Append(InboxNode* oldest) {
    if (oldest == nullptr) return;
    (first_ == nullptr ? first_ : last_->next) = oldest;
    while (oldest->next != nullptr) oldest = oldest->next;
    last_ = oldest;
  }

  // The oldest. Not when empty.
  InboxNode* Pop() {
    InboxNode* const node = first_;
    first_ = node->next;
    return node;
  }

 private:
  InboxNode* first_ = nullptr;
  InboxNode* last_ = nullptr;
};

class Inbox {
 public:
  Inbox() = default;
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // Puts the node in. Calls ring(), with which the I/O thread will call Heard
  // and then TakeAll, unless a ring is on its way. False once the inbox is
  // closed: the node then never runs.
  template <typename Ring>
  bool Post(InboxNode* node, const Ring& ring) {
    posting_.fetch_add(1, std::memory_order_relaxed);
    const bool taken = Push(node);
    if (taken && !ringing_.exchange(true, std::memory_order_acq_rel)) ring();
    // Last: Close waits for it, and the inbox may go then.
    posting_.fetch_sub(1, std::memory_order_release);
    return taken;
  }

  // The ring was heard: who posts from now on rings again.
  void Heard() {
    // An exchange, so that what was put in by those who did not ring is seen.
    ringing_.exchange(false, std::memory_order_acq_rel);
  }

  // Nobody rings from now on. False if a ring is on its way.
  bool Mute() { return !ringing_.exchange(true, std::memory_order_acq_rel); }

  bool empty() const {
    return head_.load(std::memory_order_relaxed) == nullptr;
  }

  // The nodes posted so far, oldest first, linked by `next`.
  InboxNode* TakeAll() { return Reverse(Exchange(nullptr)); }

  // The last nodes; none is accepted from now on. Whoever posted is done with
  // the inbox, and with ringing, when it returns: what ran may have ended all
  // that it was posted for before Post returned.
  InboxNode* Close() {
    InboxNode* const last = Reverse(Exchange(&closed_));
    while (posting_.load(std::memory_order_acquire) != 0) Yield();
    return last;
  }

 private:
  bool Push(InboxNode* node) {
    InboxNode* head = head_.load(std::memory_order_relaxed);
    do {
      if (head == &closed_) return false;
      node->next = head;
    } while (!head_.compare_exchange_weak(head, node, std::memory_order_release,
                                          std::memory_order_relaxed));
    return true;
  }

  InboxNode* Exchange(InboxNode* value) {
    InboxNode* head = head_.exchange(value, std::memory_order_acquire);
    return head == &closed_ ? nullptr : head;
  }

  static InboxNode* Reverse(InboxNode* node) {
    InboxNode* reversed = nullptr;
    while (node != nullptr) {
      InboxNode* next = node->next;
      node->next = reversed;
      reversed = node;
      node = next;
    }
    return reversed;
  }

  InboxNode closed_;
  std::atomic<InboxNode*> head_{nullptr};
  std::atomic<bool> ringing_{false};
  std::atomic<int> posting_{0};  // threads that are in Post
};

}  // namespace weir
