#!/usr/bin/env bash
# run.sh TEST.py [ARGUMENT...]: runs a test of the Python package with the
# packages that deploy/setup.sh installs. Without apt-get they cannot be had:
# exit code 77, skipped.
set -euo pipefail

python="${WEIR_TEST_TOOLS:-/opt/weir/test-tools}/python/bin/python"
if ! "$python" -c "import grpc, grpc_tools, numpy, setuptools" 2>/dev/null; then
  if ! command -v apt-get >/dev/null; then
    echo "skipped: $python has no grpcio, and no apt-get to install it with"
    exit 77
  fi
  echo "$python lacks the packages of [tests]: run deploy/setup.sh" >&2
  exit 1
fi
export PYTHONDONTWRITEBYTECODE=1
exec "$python" "$(dirname "$0")/$1" "${@:2}"
