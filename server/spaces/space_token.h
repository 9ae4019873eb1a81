// The secret that names a space: whoever has it may use the space. 13 of its
// bytes are random; the others tell which worker of the server has the space,
// and since which start, so that the token of a space that went with an earlier
// process is known as such. Plain value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace weir {

class SpaceToken {
 public:
  static constexpr size_t kBytes = 16;

  // Where spaces live: a worker of the server, and one of its starts.
  struct Origin {
    uint8_t worker = 0;
    uint16_t start = 0;
    friend bool operator==(const Origin&, const Origin&) = default;
  };

  // A new one, of the system's random numbers. Any thread.
  static SpaceToken New(Origin origin);
  // Empty unless there are kBytes.
  static std::optional<SpaceToken> Read(std::string_view bytes);

  Origin origin() const;
  std::string_view bytes() const {
    return {reinterpret_cast<const char*>(bytes_.data()), kBytes};
  }

  // Takes as long whatever differs.
  friend bool operator==(const SpaceToken& a, const SpaceToken& b);
  template <typename H>
  friend H AbslHashValue(H state, const SpaceToken& token) {
    return H::combine(std::move(state), token.bytes_);
  }

 private:
  std::array<uint8_t, kBytes> bytes_ = {};
};

}  // namespace weir
