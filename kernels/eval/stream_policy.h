// Which stream a work runs on. Plain values.
#pragma once

#include <cstdint>
#include <memory>

namespace weir {

class NamedStream;

struct StreamPolicy {
  enum class Kind : uint8_t {
    kPooled,         // of the device's pool, one's own as long as one has work
    kServerDefault,  // the device's one, leased for each work
    kNamed,          // one that somebody has acquired
  };
  Kind kind = Kind::kPooled;
  int priority = 0;                     // of kPooled
  std::shared_ptr<NamedStream> stream;  // of kNamed

  friend bool operator==(const StreamPolicy&, const StreamPolicy&) = default;
};

}  // namespace weir
