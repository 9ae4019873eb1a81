#!/usr/bin/env bash
# Fails on sources that clang-format would change; --fix rewrites them.
set -euo pipefail
cd "$(dirname "$0")/../.."

mode=(--dry-run -Werror)
[ "${1:-}" = --fix ] && mode=(-i)

find kernels server client tests -type f \
  \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
  xargs -0 -r clang-format --style=file "${mode[@]}"
