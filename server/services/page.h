// One page of a list whose entries are walked in the order of their keys: which
// entries it takes, and the token of the page behind it. The token names the
// last entry taken, so that nothing is kept between calls. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"

namespace weir {

inline constexpr int32_t kMaxPageEntries = 1000;
inline constexpr size_t kMaxPageBytes = size_t{1} << 20;

class Page {
 public:
  // `list` says which list it is, its filter included: a token is good for that
  // one alone. INVALID_ARGUMENT, naming page_size or page_token.
  static absl::StatusOr<Page> Read(int32_t page_size,
                                   std::string_view page_token,
                                   std::string_view list);

  // Whether an earlier page had the entry.
  bool Had(std::string_view key) const { return continues_ && key <= after_; }

  // Takes an entry of so many bytes; keys must grow. False if the page is full:
  // then nothing more fits.
  bool Take(std::string_view key, size_t bytes);
  // Leaves the rest to the next page; false if this one has no entry yet.
  bool EndHere();

  // Of the next page; empty if nothing was left to it.
  const std::string& next_token() const { return next_token_; }

 private:
  Page(int32_t entries, std::string_view list);

  uint64_t list_ = 0;  // fingerprint
  bool continues_ = false;
  std::string after_;
  int32_t entries_left_;
  size_t bytes_left_ = kMaxPageBytes;
  bool empty_ = true;
  std::string last_;
  std::string next_token_;
};

// Adds to `entries`, a repeated field, what belongs to the page; false if it is
// full.
template <typename Entries, typename Entry>
bool AddToPage(std::string_view key, Entry entry, Page* page,
               Entries* entries) {
  if (!page->Take(key, entry.ByteSizeLong())) return false;
  *entries->Add() = std::move(entry);
  return true;
}

}  // namespace weir
