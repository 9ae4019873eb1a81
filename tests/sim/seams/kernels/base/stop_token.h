// Asking somebody to stop, as the simulation has it: see tests/sim/logical.h.
// What the standard library's do, on the tree's own lock and atomic.
#pragma once

#include <list>
#include <memory>
#include <utility>

#include "kernels/base/atomic.h"
#include "kernels/base/mutex.h"
#include "kernels/base/thread.h"

namespace weir {

class StopToken;
template <typename F>
class StopCallback;

class StopSource {
 public:
  StopSource() : state_(std::make_shared<State>()) {}

  bool request_stop() {
    State& state = *state_;
    MutexLock lock(&state.mu);
    if (state.requested.exchange(true)) return false;
    state.requester = ThisThread();
    while (!state.callbacks.empty()) {
      Registered* const next = state.callbacks.front();
      state.callbacks.pop_front();
      state.runs = next;
      state.mu.Unlock();
      next->Run();
      state.mu.Lock();
      state.runs = nullptr;
      state.ran.NotifyAll();
    }
    return true;
  }
  bool stop_requested() const { return state_->requested.load(); }
  StopToken get_token() const;

 private:
  friend class StopToken;
  template <typename F>
  friend class StopCallback;
  struct Registered {
    virtual void Run() = 0;

   protected:
    ~Registered() = default;
  };
  struct State {
    Atomic<bool> requested{false};
    Mutex mu;
    CondVar ran;
    std::list<Registered*> callbacks;
    Registered* runs = nullptr;
    ThreadId requester = {};
  };

  std::shared_ptr<State> state_;
};

class StopToken {
 public:
  StopToken() = default;  // of nobody, who never asks
  bool stop_requested() const {
    return state_ != nullptr && state_->requested.load();
  }

 private:
  friend class StopSource;
  template <typename F>
  friend class StopCallback;
  explicit StopToken(std::shared_ptr<StopSource::State> state)
      : state_(std::move(state)) {}

  std::shared_ptr<StopSource::State> state_;
};

inline StopToken StopSource::get_token() const { return StopToken(state_); }

template <typename F>
class StopCallback final : private StopSource::Registered {
 public:
  StopCallback(StopToken token, F callback)
      : state_(std::move(token.state_)), callback_(std::move(callback)) {
    if (state_ == nullptr) return;
    {
      MutexLock lock(&state_->mu);
      if (!state_->requested.load()) {
        state_->callbacks.push_back(this);
        return;
      }
    }
    callback_();
  }
  StopCallback(const StopCallback&) = delete;
  StopCallback& operator=(const StopCallback&) = delete;
  ~StopCallback() {
    if (state_ == nullptr) return;
    MutexLock lock(&state_->mu);
    state_->callbacks.remove(this);
    // It may be destroyed by what it runs.
    while (state_->runs == this && state_->requester != ThisThread()) {
      state_->ran.Wait(&state_->mu);
    }
  }

 private:
  void Run() override { callback_(); }

  const std::shared_ptr<StopSource::State> state_;
  F callback_;
};

}  // namespace weir
