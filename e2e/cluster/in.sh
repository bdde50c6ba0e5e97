#!/usr/bin/env bash
# in.sh N COMMAND…: runs a command in the namespaces of node N.
set -euo pipefail
. "$(dirname "$0")/env.sh"
pid=$(cat "$work/nodes/$1.pid")
shift
exec nsenter -t "$pid" --wd="$PWD" -m -u -i -n -p -C -- "$@"
