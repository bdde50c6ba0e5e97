#!/usr/bin/env bash
# Ends the cluster: with the first process of a node's namespaces all others end.
set -euo pipefail
. "$(dirname "$0")/env.sh"
shopt -s nullglob
for file in "$work"/nodes/*.pid; do
  pid=$(cat "$file")
  grep -q node.sh "/proc/$pid/cmdline" 2>/dev/null || continue
  keep_log "$(basename "$file" .pid)"
  kill -9 "$pid"
  for _ in $(seq 100); do
    [ -d "/proc/$pid" ] || break
    sleep 0.1
  done
done
for net in $(ip netns list | grep -oE '^cluster-(node[0-9]+|client)\b' || true); do ip netns del "$net"; done
if [ -e "$work/nodes/cgroups" ]; then
  while read -r group; do
    [ ! -d "$group" ] || find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || true
  done <"$work/nodes/cgroups"
fi
rm -rf "$work/nodes" "$work/var" "$work/deploy"
echo "the cluster has ended; its logs are in $work/log"
