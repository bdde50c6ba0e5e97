#!/usr/bin/env bash
# report.sh: writes docs/conformance.md of all that specs.sh and churn.sh have left.
set -euo pipefail
. "$(dirname "$0")/env.sh"
cd "$root/e2e"
exec go run ./cluster/report -kubernetes "$version" -reports "$work/report" -churn "$work/churn" -doc "$root/docs/conformance.md"
