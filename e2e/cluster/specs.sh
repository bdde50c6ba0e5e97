#!/usr/bin/env bash
# specs.sh NAME FOCUS [SKIP]: runs those of Kubernetes' own end-to-end specs whose
# text matches the regular expression FOCUS and not SKIP, PROCESSES (4) at a time.
# What became of them is in $work/report/NAME. It fails where one of them does.
set -euo pipefail
. "$(dirname "$0")/env.sh"
report=$work/report/$1
rm -rf "$report"
mkdir -p "$report"
nodes=$(ls "$work"/nodes/*.pid | wc -l)
code=0
"$here/in.sh" 1 env KUBECONFIG="$KUBECONFIG" "$kept/bin/ginkgo" --procs="${PROCESSES:-4}" --no-color -v --timeout=1h \
  --focus="$2" --skip="${3:-^$}" "$kept/bin/e2e.test" -- \
  --provider=skeleton --kubeconfig="$KUBECONFIG" --kubectl-path="$kept/bin/kubectl" --num-nodes="$nodes" \
  --report-dir="$report" --disable-log-dump --node-schedulable-timeout=1m </dev/null >"$report/log" 2>&1 || code=$?
grep -E '^Ran |^  \[FAIL\]' "$report/log" | sort -u || true
exit $code
