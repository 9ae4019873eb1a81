#!/usr/bin/env bash
# run.sh TEST.py [ARGUMENT...]: runs a test with the Python and the tools that
# deploy/setup.sh installs. Without apt-get they cannot be had: exit code 77,
# skipped.
set -euo pipefail

tools="${WEIR_TEST_TOOLS:-/opt/weir/test-tools}"
for tool in bin/kubectl newest/kubectl newest/helm bin/promtool bin/prometheus \
  python/bin/kubernetes-validate; do
  [ -x "$tools/$tool" ] && continue
  if ! command -v apt-get >/dev/null; then
    echo "skipped: no $tools/$tool, and no apt-get to install it from"
    exit 77
  fi
  echo "there is no $tools/$tool: run deploy/setup.sh" >&2
  exit 1
done
version="$("$tools/bin/kubectl" version --client --output=json |
  sed -n 's/.*"gitVersion": "v1\.\([0-9]*\)\..*/\1/p')"
if [ "${version:-0}" -lt 27 ]; then
  echo "$tools/bin/kubectl is 1.${version:-?}, and the manifests need 1.27 or" \
    "newer: run deploy/setup.sh" >&2
  exit 1
fi
export PATH="$tools/bin:$PATH:$tools/newest" PYTHONDONTWRITEBYTECODE=1
exec "$tools/python/bin/python" "$(dirname "$0")/$1" "${@:2}"
