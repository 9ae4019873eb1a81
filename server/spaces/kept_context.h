// What a context's number stands for: the context, what holds for works in it
// that say nothing else, and how long nobody has used it.
//
// Thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "kernels/eval/engine.h"
#include "kernels/eval/eval_context.h"
#include "kernels/eval/eval_mode.h"
#include "server/spaces/account.h"

namespace weir {

// Read by each work when its request is: what is set later does not touch it.
struct ContextSettings {
  EvalMode mode = EvalMode::kEager;
  int cpu_threads = 0;  // as WorkRequest
  bool queue = false;   // for it, while another handler is in it
  Nanos ttl = 0;        // it ends once it is unused for so long; 0: never
};

class KeptContext {
 public:
  // On a device of `engine`, which outlives it. `share` counts it.
  KeptContext(Engine* engine, std::shared_ptr<EvalContext> context,
              const ContextSettings& settings, Account::Share share)
      : engine_(engine),
        context_(std::move(context)),
        share_(std::move(share)),
        settings_(settings) {}

  Engine& engine() const { return *engine_; }
  const std::shared_ptr<EvalContext>& context() const { return context_; }

  ContextSettings settings() const;
  void set_settings(const ContextSettings& settings);

  // Somebody uses it now.
  void Touch(Nanos now);
  // Whether it was seen unused for as long as its ttl: nobody inside, and no
  // work of it unfinished. To be asked now and then: time counts from the first
  // time that it was seen so.
  bool Expired(Nanos now);

 private:
  Engine* const engine_;
  const std::shared_ptr<EvalContext> context_;
  const Account::Share share_;

  mutable Mutex mu_;
  ContextSettings settings_ WEIR_GUARDED_BY(mu_);
  // Since when it is unused, if it was seen to be.
  std::optional<Nanos> unused_since_ WEIR_GUARDED_BY(mu_);
};

}  // namespace weir
