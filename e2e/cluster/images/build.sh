#!/usr/bin/env bash
# Makes the images that the specs ask for, under the names that they ask for,
# from programs of this machine: pause, agnhost (with the tools of Kubernetes'
# own), distroless-iptables and regression-issue-74839.
set -euo pipefail
. "$(dirname "$0")/../env.sh"
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
image() { python3 "$here/images/image.py" "$new/root" "$kept/images/$1.tar" "$2" "$3"; }

mkdir "$new/root"
gcc -O2 -static -s -o "$new/root/pause" "$here/images/pause.c"
image pause registry.k8s.io/pause:3.10.2 /pause

rm "$new/root/pause"
cd "$new/root"
mkdir -p bin usr/bin usr/sbin sbin etc uploads lib64 usr/local/bin var/registry root proc sys dev run usr/lib/x86_64-linux-gnu/xtables
mkdir -m 1777 tmp
cp "$kept/bin/agnhost" agnhost
ln -s agnhost agnhost-2
cp "$(command -v busybox)" bin/busybox
for applet in $(busybox --list); do [ "$applet" = busybox ] || ln -s busybox "bin/$applet"; done

# with PROGRAM…: each, and the libraries that it needs.
with() {
  local program file library
  for program; do
    file=$(readlink -f "$(command -v "$program")")
    rm -f "bin/$program"
    cp "$file" "usr/bin/$program"
    for library in $(ldd "$file" 2>/dev/null | grep -o '/[^ ]*'); do
      mkdir -p ".$(dirname "$library")"
      [ -e ".$library" ] || cp -L "$library" ".$library"
    done
  done
}
with dash bash wget curl nc ss ip dig nslookup socat
rm -f bin/sh bin/bash
ln -s /usr/bin/dash bin/sh
ln -s /usr/bin/bash bin/bash
cp "$(cd "$here/specs" && go list -mod=mod -m -f '{{.Dir}}' k8s.io/kubernetes)"/test/images/agnhost/porter/localhost.* .
cat >etc/passwd <<'EOF'
root:x:0:0:root:/root:/bin/sh
nobody:x:65534:65534:nobody:/:/bin/false
user-defined-in-image:x:1000:1000::/:/bin/sh
EOF
cat >etc/group <<'EOF'
root:x:0:
nogroup:x:65534:
group-defined-in-image:x:50000:user-defined-in-image
EOF
echo 'hosts: files dns' >etc/nsswitch.conf
for library in /lib/x86_64-linux-gnu/libnss_{dns,files}.so.2 /lib/x86_64-linux-gnu/libresolv.so.2; do
  mkdir -p ".$(dirname "$library")"
  [ -e ".$library" ] || cp -L "$library" ".$library"
done
image agnhost registry.k8s.io/e2e-test-images/agnhost:2.66.1 /agnhost,pause

with conntrack iptables nft
image distroless-iptables registry.k8s.io/build-image/distroless-iptables:v0.9.9 /bin/sh
cp "$kept/bin/regression-issue-74839" .
image regression registry.k8s.io/e2e-test-images/regression-issue-74839:1.5 /regression-issue-74839
