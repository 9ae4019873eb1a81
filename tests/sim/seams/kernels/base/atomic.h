// The tree's atomics as the simulation has them: see tests/sim/logical.h.
#pragma once

#include <atomic>
#include <utility>

#include "tests/sim/logical.h"

namespace weir {

template <typename T>
class Atomic {
 public:
  // What is in them, or makes them, is the place where they are made.
  [[gnu::always_inline]] Atomic() : value_() {}
  [[gnu::always_inline]] Atomic(T value)  // NOLINT(google-explicit-constructor)
      : value_(value) {}
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;

  T load(std::memory_order = std::memory_order_seq_cst) const {
    sim::Touch(object_, sim::Access::kRead);
    return value_;
  }
  void store(T value, std::memory_order = std::memory_order_seq_cst) {
    exchange(value);
  }
  T exchange(T value, std::memory_order = std::memory_order_seq_cst) {
    sim::Touch(object_, sim::Access::kWrite);
    return std::exchange(value_, value);
  }
  bool compare_exchange_strong(T& expected, T desired,
                               std::memory_order = std::memory_order_seq_cst,
                               std::memory_order = std::memory_order_seq_cst) {
    sim::Touch(object_, sim::Access::kWrite);
    if (value_ == expected) {
      value_ = desired;
      return true;
    }
    expected = value_;
    return false;
  }
  bool compare_exchange_weak(T& expected, T desired,
                             std::memory_order = std::memory_order_seq_cst,
                             std::memory_order = std::memory_order_seq_cst) {
    return compare_exchange_strong(expected, desired);
  }
  T fetch_add(T by, std::memory_order = std::memory_order_seq_cst) {
    return exchange_with([by](T old) { return static_cast<T>(old + by); });
  }
  T fetch_sub(T by, std::memory_order = std::memory_order_seq_cst) {
    return exchange_with([by](T old) { return static_cast<T>(old - by); });
  }
  T fetch_or(T by, std::memory_order = std::memory_order_seq_cst) {
    return exchange_with([by](T old) { return static_cast<T>(old | by); });
  }
  T fetch_and(T by, std::memory_order = std::memory_order_seq_cst) {
    return exchange_with([by](T old) { return static_cast<T>(old & by); });
  }

  operator T() const { return load(); }  // NOLINT(google-explicit-constructor)
  T operator=(T value) {
    store(value);
    return value;
  }
  T operator++() { return fetch_add(1) + 1; }
  T operator--() { return fetch_sub(1) - 1; }
  T operator++(int) { return fetch_add(1); }
  T operator--(int) { return fetch_sub(1); }
  T operator+=(T by) { return fetch_add(by) + by; }
  T operator-=(T by) { return fetch_sub(by) - by; }

 private:
  template <typename F>
  T exchange_with(F next) {
    sim::Touch(object_, sim::Access::kWrite);
    return std::exchange(value_, next(value_));
  }

  T value_;
  mutable sim::Object object_;
};

}  // namespace weir
