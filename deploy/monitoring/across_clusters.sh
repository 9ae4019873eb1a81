#!/usr/bin/env bash
# Prints rules.yaml for whoever has the series of several clusters, told apart
# by a label, without which a cluster's server would hide another one's outage:
#   deploy/monitoring/across_clusters.sh cluster >weir-rules.yaml
set -euo pipefail
cd "$(dirname "$0")"

label="${1:-}"
if [[ $# -ne 1 || ! "$label" =~ ^[a-zA-Z_][a-zA-Z0-9_]*$ ]]; then
  echo "usage: across_clusters.sh LABEL, such as cluster" >&2
  exit 2
fi
sed -E -e "s/\\b(on|by) \\((namespace|job)\\b/\\1 ($label, \\2/g" \
  -e "s/\\bon \\(\\) group\\(/on ($label) group by ($label) (/" \
  -e "s/\\{\\{ \\\$labels\\.namespace \\}\\}/{{ \$labels.$label }}\/&/g" \
  rules.yaml
