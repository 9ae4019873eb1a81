#!/usr/bin/env bash
# Runs the operator tests of the onnx package itself. Needs the network once,
# for the package; part of `make test-all`.
#
# Usage: onnx_backend_cases.sh TEST_PROGRAM WORK_FOLDER
set -euo pipefail

program=$1
work=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
requirements=$here/../../requirements.txt

mkdir -p "$work"
if ! cmp -s "$requirements" "$work/installed.txt"; then
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" install --quiet -r "$requirements"
  cp "$requirements" "$work/installed.txt"
fi
rm -rf "$work/cases"
"$work/venv/bin/python" -W ignore "$here/make_onnx_cases.py" \
  --onnx-backend "$work/cases"
WEIR_ONNX_CASES=$work/cases "$program"
