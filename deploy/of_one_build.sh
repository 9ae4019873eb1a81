#!/usr/bin/env bash
# of_one_build.sh FOLDER: fails if a program or a library of ours in this build
# folder is of another build than its last. A library stays when the next build
# makes it no more, and goes unnoticed until weir-server is to load it.
set -euo pipefail

build="${1:?usage: of_one_build.sh FOLDER}"
id="$(sed -n 's/.*kBuildId\[\] = "\(.*\)".*/\1/p' "$build/generated/build_id.cc")"
[ -n "$id" ] || { echo "of_one_build: no build id in $build" >&2; exit 1; }
for file in "$build"/bin/weir{-server,} "$build"/lib/libweir*.so; do
  grep -qF "$id" "$file" && continue
  echo "of_one_build: $file is of another build than the last of $build: make" \
    "it again, or remove it" >&2
  exit 1
done
