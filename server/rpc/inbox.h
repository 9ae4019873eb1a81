// What other threads want an I/O thread to run. Nodes belong to whoever posts
// them and must live until they ran. Inbox: Push from any thread without a
// lock; TakeAll and Close from the I/O thread only.
#pragma once

#include <atomic>

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

  // False once the inbox is closed; the node then never runs.
  bool Push(InboxNode* node) {
    InboxNode* head = head_.load(std::memory_order_relaxed);
    do {
      if (head == &closed_) return false;
      node->next = head;
    } while (!head_.compare_exchange_weak(head, node, std::memory_order_release,
                                          std::memory_order_relaxed));
    return true;
  }

  bool empty() const {
    return head_.load(std::memory_order_relaxed) == nullptr;
  }

  // The nodes posted so far, oldest first, linked by `next`.
  InboxNode* TakeAll() { return Reverse(Exchange(nullptr)); }

  // The last nodes; none is accepted from now on.
  InboxNode* Close() { return Reverse(Exchange(&closed_)); }

 private:
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
};

}  // namespace weir
