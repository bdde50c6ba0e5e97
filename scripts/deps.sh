#!/usr/bin/env bash
# Brings what the tests need: root, the programs below, and a kernel with
# network namespaces and nftables; or with the argument "bench" what the
# benchmarks need. On Debian what is missing is installed; elsewhere, or without
# root, it is named and the exit code is 1.
set -euo pipefail

# A program, or a pattern of a file's path, and the package that has it.
case ${1:-tests} in
tests)
  what="The tests"
  wanted=(
    gcc:gcc # for the race detector
    /usr/include/stdlib.h:libc6-dev # a compiler without these headers is none
    ip:iproute2
    nft:nftables
    iptables-restore:iptables
    conntrack:conntrack
    tcpdump:tcpdump
    curl:curl
    dig:bind9-dnsutils
    nginx:nginx-light
    redis-server:redis-server
    redis-benchmark:redis-tools
    dnsmasq:dnsmasq-base
    '/usr/lib/postgresql/*/bin/pgbench:postgresql'
    iperf3:iperf3
    nc:netcat-openbsd
    setpriv:util-linux
    nsenter:util-linux
    buildah:buildah # which makes the container's image
    systemd-analyze:systemd
    promtool:prometheus # and prometheus itself, which scrapes the proxy
  )
  ;;
bench)
  what="The benchmarks"
  wanted=(
    ip:iproute2
    nft:nftables
    haproxy:haproxy
    nginx:nginx-light
    /usr/lib/nginx/modules/ngx_stream_module.so:libnginx-mod-stream
  )
  ;;
*)
  echo "usage: scripts/deps.sh [tests|bench]" >&2
  exit 2
  ;;
esac
export PATH=$PATH:/usr/sbin:/sbin

missing_programs=()
missing_packages=()
for w in "${wanted[@]}"; do
  case $w in
  /*) ! compgen -G "${w%%:*}" >/dev/null || continue ;;
  *) ! command -v "${w%%:*}" >/dev/null || continue ;;
  esac
  missing_programs+=("${w%%:*}")
  missing_packages+=("${w##*:}")
done

lacks=()
[ "$(id -u)" = 0 ] || lacks+=("root: they lay out network namespaces and change rules in them")
if [ ${#missing_programs[@]} -gt 0 ] && { [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; }; then
  lacks+=("programs: ${missing_programs[*]} (they are installed for you as root on Debian)")
fi
if [ ${#lacks[@]} -gt 0 ]; then
  echo "$what cannot run here. They lack:" >&2
  printf '  %s\n' "${lacks[@]}" >&2
  exit 1
fi

if [ ${#missing_packages[@]} -gt 0 ]; then
  echo "installing ${missing_packages[*]}"
  # Debian starts a daemon when its package is installed. This file asks it not
  # to; one that is there already stays as it is.
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq </dev/null
  apt-get install -qq -y --no-install-recommends "${missing_packages[@]}" </dev/null >/dev/null
fi

# Tried, not looked up: a module may be built in, loaded or loadable.
if ! unshare --net true 2>/dev/null; then
  lacks+=("a kernel and rights to make network namespaces (unshare --net fails)")
elif ! unshare --net nft add table inet probe 2>/dev/null; then
  lacks+=("a kernel with nftables (nft add table fails in a new network namespace)")
elif ! unshare --net ip link add name probe0 type veth peer name probe1 2>/dev/null; then
  lacks+=("a kernel with veth links")
elif [ ! -e /proc/net/if_inet6 ]; then
  lacks+=("a kernel with IPv6")
fi
if [ ${#lacks[@]} -gt 0 ]; then
  echo "$what cannot run here. They lack:" >&2
  printf '  %s\n' "${lacks[@]}" >&2
  exit 1
fi
