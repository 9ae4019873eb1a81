// A stream that a caller has acquired and numbered. Works that were accepted on
// it keep the stream beyond this; what is reserved on it goes with this.
#pragma once

#include <memory>
#include <utility>

#include "kernels/eval/engine.h"
#include "kernels/eval/named_stream.h"
#include "server/spaces/account.h"
#include "server/spaces/stream_slots.h"

namespace weir {

class KeptStream {
 public:
  // What it was acquired with.
  struct Settings {
    Engine* engine = nullptr;
    int priority = 0;
    NamedStreamOptions options;

    friend bool operator==(const Settings&, const Settings&) = default;
  };

  KeptStream(const Settings& settings, std::shared_ptr<NamedStream> stream)
      : settings_(settings),
        stream_(std::move(stream)),
        slots_(StreamSlots::Create(&settings.engine->timers())) {}
  ~KeptStream() { slots_->Close(); }
  KeptStream(const KeptStream&) = delete;
  KeptStream& operator=(const KeptStream&) = delete;

  const Settings& settings() const { return settings_; }
  const std::shared_ptr<NamedStream>& stream() const { return stream_; }
  StreamSlots& slots() { return *slots_; }

 private:
  const Settings settings_;
  const std::shared_ptr<NamedStream> stream_;
  const std::shared_ptr<StreamSlots> slots_;
};

}  // namespace weir
