#!/usr/bin/env bash
# A small shop with real servers, in three network namespaces:
#
#   shop-client 10.20.1.2 ── shop-node, where userspace-proxy runs ── shop-back 10.20.2.2 to .7
#
# It needs root, and nginx, PostgreSQL, Redis, dnsmasq, nc and dig (on Debian:
# scripts/deps.sh). Ctrl-C ends it and removes everything that it made. README.md
# walks through what to try.
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin

here=$(cd "$(dirname "$0")" && pwd)
proxy=${USERSPACE_PROXY:-$(cd "$here/../.." && pwd)/bin/userspace-proxy}
back4=(10.20.2.{2..7}) back6=(fd20:2::{2..7})

die() { echo "run.sh: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || die "must be run as root: it makes network namespaces"
[ -x "$proxy" ] || die "$proxy is not there: run make build first"
for program in ip nginx redis-server dnsmasq nc setpriv curl dig; do
  command -v "$program" >/dev/null || die "$program is not installed (scripts/deps.sh installs what is needed)"
done
postgres=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
[ -x "$postgres/postgres" ] || die "PostgreSQL is not installed (scripts/deps.sh installs what is needed)"
for namespace in shop-client shop-node shop-back; do
  [ ! -e "/run/netns/$namespace" ] || die "a namespace $namespace is there already: is another shop open? If none is: ip netns del $namespace"
done

dir=$(mktemp -d /tmp/shop.XXXXXX)
chmod 755 "$dir"
made=() pids=()
close() {
  trap '' INT TERM
  for ((i = ${#pids[@]} - 1; i >= 0; i--)); do kill "${pids[i]}" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
  for namespace in "${made[@]}"; do ip netns del "$namespace" || true; done
  rm -rf "$dir"
}
trap close EXIT
trap 'exit 0' INT TERM

in_() { ip netns exec "shop-$1" "${@:2}"; }
# A server in shop-back, which ends with the shop.
serve() {
  ip netns exec shop-back "${@:2}" >"$dir/$1.log" 2>&1 </dev/null &
  pids+=($!)
}

for namespace in shop-client shop-node shop-back; do
  ip netns add "$namespace"
  made+=("$namespace")
  in_ "${namespace#shop-}" sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 \
    net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0
  in_ "${namespace#shop-}" ip link set lo up
done
# join HOST ADDRESS4 ADDRESS6: its link to the node, whose addresses end in 1.
join() {
  ip -n shop-node link add "$1" type veth peer name eth0 netns "shop-$1"
  ip -n shop-node link set "$1" up
  ip -n "shop-$1" link set eth0 up
  ip -n shop-node addr add "${2%.*}.1/24" dev "$1"
  ip -n shop-node addr add "${3%::*}::1/64" dev "$1" nodad
  ip -n "shop-$1" addr add "$2/24" dev eth0
  ip -n "shop-$1" addr add "$3/64" dev eth0 nodad
  ip -n "shop-$1" route add default via "${2%.*}.1"
  ip -n "shop-$1" -6 route add default via "${3%::*}::1"
}
join client 10.20.1.2 fd20:1::2
join back 10.20.2.2 fd20:2::2
for i in 1 2 3 4 5; do
  ip -n shop-back addr add "${back4[i]}/24" dev eth0
  ip -n shop-back addr add "${back6[i]}/64" dev eth0 nodad
done
# Packets for Services need a route on the node, as they have in a cluster.
ip -n shop-node route add default via 10.20.2.2
ip -n shop-node -6 route add default via fd20:2::2

# web-1, web-2 and api-1, api-2: two nginx with a web server and an API each.
for i in 1 2; do
  mkdir "$dir/nginx$i"
  cat >"$dir/nginx$i.conf" <<END
daemon off; master_process off; user root; pid $dir/nginx$i/pid; error_log stderr;
events {}
http {
  access_log off; default_type text/plain;
  client_body_temp_path $dir/nginx$i/a; proxy_temp_path $dir/nginx$i/b; fastcgi_temp_path $dir/nginx$i/c;
  uwsgi_temp_path $dir/nginx$i/d; scgi_temp_path $dir/nginx$i/e;
  server { # web
    listen ${back4[i - 1]}:8080; listen [${back6[i - 1]}]:8080;
    location / { return 200 "welcome to the shop, says web-$i\n"; }
  }
  server { # its second port
    listen ${back4[i - 1]}:8081; listen [${back6[i - 1]}]:8081;
    location / { stub_status; }
  }
  server { # api
    listen ${back4[i - 1]}:8090; default_type application/json;
    location = /articles { return 200 '{"articles": ["tea", "cup"], "from": "api-$i"}\n'; }
  }
}
END
  serve "nginx$i" nginx -e stderr -c "$dir/nginx$i.conf"
done

# db-1
install -d -o postgres "$dir/db"
setpriv --reuid=postgres --regid=postgres --clear-groups "$postgres/initdb" \
  --pgdata="$dir/db/data" --no-sync --auth=trust --no-locale >"$dir/initdb.log"
echo "host all all all trust" >"$dir/db/data/pg_hba.conf"
serve db setpriv --reuid=postgres --regid=postgres --clear-groups "$postgres/postgres" \
  -D "$dir/db/data" -h "${back4[2]}" -k "" -F -c shared_buffers=16MB -c dynamic_shared_memory_type=mmap

# cart-1, dns-1, syslog-1
serve cart redis-server --bind "${back4[3]}" --protected-mode no --save "" --appendonly no --dir "$dir"
serve dns dnsmasq --keep-in-foreground --conf-file=/dev/null --no-resolv --no-hosts --user=root --pid-file= \
  --log-facility=- --bind-interfaces --except-interface=lo "--listen-address=${back4[4]}" "--listen-address=${back6[4]}" \
  --address=/web.shop.test/10.96.1.10 --address=/web.shop.test/fd96:1::10
serve syslog nc -n -k -l -u "${back4[5]}" 5514

# The proxy, on the node. Its file of Services is a copy that may be changed.
cp "$here/services.yaml" "$dir/services.yaml"
ip netns exec shop-node "$proxy" run --file "$dir/services.yaml" --drain-timeout=1s >"$dir/proxy.log" 2>&1 </dev/null &
pids+=($!)

# await NAME COMMAND...: waits until a command on the client works.
await() {
  for ((i = 0; i < 600; i++)); do
    if in_ client timeout 5 "${@:2}" >/dev/null 2>&1; then return; fi
    kill -0 "${pids[-1]}" 2>/dev/null || { cat "$dir/proxy.log" >&2; die "userspace-proxy has ended"; }
    sleep 0.1
  done
  die "$1 does not answer; the logs: $(tail -n 3 "$dir"/*.log)"
}
await web curl -fsS http://10.96.1.10
await api curl -fsS http://10.96.1.20/articles
await db "$postgres/pg_isready" -h 10.96.1.30
await cart nc -z 10.96.1.40 6379
await dns dig +tries=1 +time=1 @10.96.1.53 web.shop.test

cat <<END
The shop is open. Try in another terminal (examples/shop/README.md says more):

  ip netns exec shop-client curl -s http://10.96.1.10           a web server, another one each time
  ip netns exec shop-client curl -s http://10.96.1.20/articles  the API, always the same one
  ip netns exec shop-node $proxy status
  ip netns exec shop-node $proxy explain tcp 10.96.1.10:80

Its Services are in $dir/services.yaml: change them, and the change is served.
Ctrl-C closes it.
END
wait "${pids[-1]}"
