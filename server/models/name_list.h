// Names for an error about one that there is not: a message is short, however
// many there are. For one thread at a time.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weir {

class NameList {
 public:
  void Add(std::string_view name);

  // "\"x\", \"y\" and 40 more", of the first ones, long ones cut short; "none".
  std::string Text() const;

 private:
  std::string text_;
  size_t count_ = 0;
};

}  // namespace weir
