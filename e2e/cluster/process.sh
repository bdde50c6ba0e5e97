#!/usr/bin/env bash
# process.sh N start PROGRAM COMMAND…   starts a program on node N
# process.sh N end PROGRAM              ends it by SIGTERM; after ten seconds by SIGKILL
# process.sh N start PROGRAM            starts it anew, as it was started before it was ended
#
# A program is called as its log is, $work/log/N/PROGRAM.log: kube-apiserver, or
# proxy for kube-proxy.
set -euo pipefail
. "$(dirname "$0")/env.sh"
n=$1 do=$2 program=$3
shift 3
at=$work/var/$n/$program # .pid is its number in the node's own namespace
case $do in
start)
  [ $# -gt 0 ] || mapfile -t -d '' again <"$at.command"
  "$here/in.sh" "$n" bash -c 'log=$1 pid=$2; shift 2; setsid "$@" >>"$log" 2>&1 </dev/null & echo $! >"$pid"' _ \
    "$work/log/$n/$program.log" "$at.pid" "${@:-"${again[@]}"}"
  ;;
end)
  [ -e "$at.pid" ] || exit 0
  "$here/in.sh" "$n" bash -c '
    pid=$(cat "$1.pid")
    [ -d "/proc/$pid" ] || exit 0
    cat "/proc/$pid/cmdline" >"$1.command"
    kill "$pid"
    for _ in $(seq 100); do [ -d "/proc/$pid" ] || exit 0; sleep 0.1; done
    kill -9 "$pid"' _ "$at"
  rm "$at.pid"
  ;;
esac
