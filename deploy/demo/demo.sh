#!/usr/bin/env bash
# Starts a server on free ports and shows three things on it: a photograph
# through a tensor program, digits through a served model, and its speed. Stops
# the server and exits non-zero if anything fails.
#
# Usage: demo.sh [BUILD_FOLDER]      (default: build)
# The picture lands in BUILD_FOLDER/demo/preview.png.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(cd "${1:-$root/build}" && pwd)
out=$build/demo
models=$root/tests/data
server=

say() { printf '\n== %s\n' "$*"; }
fail() {
  printf 'demo: %s\n' "$*" >&2
  exit 1
}

cleanup() {
  status=$?
  [[ -z $server ]] || kill -KILL "$server" 2>/dev/null || true
  if [[ $status -ne 0 && -s $out/server.log ]]; then
    printf '%s\n' "-- the server's log:" >&2
    cat "$out/server.log" >&2
  fi
}
trap cleanup EXIT

mkdir -p "$out"
rm -f "$out"/*
mkfifo "$out/ready"

say "Starting the server"
"$build/bin/weir-server" --grpc=127.0.0.1:0 --http=127.0.0.1:0 \
  --model-repository="$models" --drain-delay=0 --drain-timeout=10 \
  --max-connection-age=5 \
  >"$out/ready" 2>"$out/server.log" &
server=$!
# Kept open: the server may say more.
exec 3<"$out/ready"
read -r -t 120 line <&3 || fail "the server did not start"
echo "$line"
[[ $line =~ grpc=([^ ,]+) ]] || fail "no address in '$line'"
export WEIR_SERVER=${BASH_REMATCH[1]}

weir() { timeout 120 "$build/bin/weir" "$@"; }

say "A photograph: decode, resize, crop, normalize, random flip"
weir eval "$root/deploy/demo/preprocess.textproto" \
  --input "image=@$models/photo.jpg" \
  --output "preview=$out/preview.png" --report full
[[ -s $out/preview.png ]] || fail "no picture was written"

say "Handwritten digits: a served ONNX model over KServe v2"
weir infer digits \
  --input "image=@$models/digits_samples.f32:float:360x1x8x8" \
  --labels "$models/digits_labels.txt" --at-least 0.95

say "Three seconds of load: one digit a request"
weir load digits --duration 3

say "Stopping the server"
kill -TERM "$server"
wait "$server" || fail "the server ended with exit code $?"
server=
echo "done; the picture is $out/preview.png"
