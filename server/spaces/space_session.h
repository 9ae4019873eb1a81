// What a space has of a session: something that ends with it. Owned by the
// space's table and by whoever is attached to it. Thread-safe.
#pragma once

namespace weir {

class SpaceSession {
 public:
  virtual ~SpaceSession() = default;
  // The space was closed, and has it no more. Once; waits for nothing.
  virtual void SpaceClosed() = 0;
};

}  // namespace weir
