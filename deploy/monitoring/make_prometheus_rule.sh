#!/usr/bin/env bash
# Prints prometheus-rule.yaml, which is rules.yaml as a PrometheusRule:
#   deploy/monitoring/make_prometheus_rule.sh >deploy/monitoring/prometheus-rule.yaml
set -euo pipefail
cd "$(dirname "$0")"

cat <<'HEAD'
# Made of rules.yaml by make_prometheus_rule.sh; change rules.yaml.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: weir
spec:
HEAD
sed -e '/^#/d' -e 's/^./  &/' rules.yaml
