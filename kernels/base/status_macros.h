// Early return on a failed absl::Status or absl::StatusOr. The packaged Abseil
// has no such macros. Both evaluate their expression exactly once.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define WEIR_RETURN_IF_ERROR(expr)                            \
  do {                                                        \
    if (absl::Status weir_status = (expr); !weir_status.ok()) \
      return weir_status;                                     \
  } while (false)

#define WEIR_CONCAT_INNER(a, b) a##b
#define WEIR_CONCAT(a, b) WEIR_CONCAT_INNER(a, b)

// WEIR_ASSIGN_OR_RETURN(auto x, MakeX());
#define WEIR_ASSIGN_OR_RETURN(lhs, expr) \
  WEIR_ASSIGN_OR_RETURN_INNER(WEIR_CONCAT(weir_or_, __LINE__), lhs, expr)
// NOLINTBEGIN(bugprone-macro-parentheses): these are declarations
#define WEIR_ASSIGN_OR_RETURN_INNER(var, lhs, expr) \
  auto var = (expr);                                \
  if (!var.ok()) return std::move(var).status();    \
  lhs = *std::move(var)
// NOLINTEND(bugprone-macro-parentheses)
