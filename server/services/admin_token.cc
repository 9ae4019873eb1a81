#include "server/services/admin_token.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/rpc/small_file.h"

namespace weir {
namespace {

constexpr size_t kMaxTokenBytes = 4096;

absl::StatusOr<std::string> Read(const std::string& path) {
  const auto refuse = [&](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("--admin-token-file: ", path, what));
  };
  absl::StatusOr<std::string> content = ReadSmallFile(path, kMaxTokenBytes);
  if (!content.ok()) {
    return refuse(absl::StrCat(": ", content.status().message()));
  }
  std::string token = *std::move(content);
  while (!token.empty() &&
         absl::ascii_isspace(static_cast<unsigned char>(token.back()))) {
    token.pop_back();
  }
  if (token.empty()) return refuse(" holds no token");
  if (!std::all_of(token.begin(), token.end(),
                   [](char c) { return c > ' ' && c < 0x7f; })) {
    return refuse(" holds more than one word of visible ASCII characters");
  }
  return token;
}

}  // namespace

absl::StatusOr<std::unique_ptr<AdminToken>> AdminToken::Open(
    const std::string& path, ReportFn report, absl::Duration refresh) {
  WEIR_ASSIGN_OR_RETURN(std::string token, Read(path));
  std::unique_ptr<AdminToken> opened(
      new AdminToken(path, std::move(report), std::move(token)));
  opened->watcher_.emplace("weir-token", refresh,
                           [self = opened.get()] { self->Look(); });
  return opened;
}

bool AdminToken::Matches(std::string_view given) const {
  const MutexLock lock(&mu_);
  int different = given.size() == token_.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    different |= static_cast<unsigned char>(given[i]) ^
                 static_cast<unsigned char>(token_[i % token_.size()]);
  }
  return different == 0;
}

void AdminToken::Look() {
  absl::StatusOr<std::string> found = Read(path_);
  if (!found.ok()) {
    std::string now(found.status().message());
    if (now != problem_) {
      report_(false, absl::StrCat(now, "; the token of before stays in use"));
    }
    problem_ = std::move(now);
    return;
  }
  problem_.clear();
  {
    const MutexLock lock(&mu_);
    if (*found == token_) return;
    token_ = *std::move(found);
  }
  report_(true, "--admin-token-file: new token in use");
}

}  // namespace weir
