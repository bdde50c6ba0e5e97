#!/usr/bin/env bash
# Makes the cluster's certificates, keys and tokens, once for a work directory.
set -euo pipefail
. "$(dirname "$0")/env.sh"
mkdir -p "$work/pki"
cd "$work/pki"
exec 2>openssl.log

authority() { # NAME SUBJECT
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key" -out "$1.crt" -days 3650 -subj "/CN=$2" \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,digitalSignature
}
certificate() { # NAME SUBJECT AUTHORITY EXTENSIONS
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key" -out "$1.csr" -subj "/CN=$2"
  openssl x509 -req -in "$1.csr" -CA "$3.crt" -CAkey "$3.key" -CAcreateserial -out "$1.crt" -days 3650 -extfile <(printf '%s\n' "${@:4}")
}
authority ca cluster-ca
certificate server kube-apiserver ca extendedKeyUsage=serverAuth \
  "subjectAltName=IP:127.0.0.1,IP:$server_ip,IP:10.96.0.1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local"
authority front-ca front-proxy-ca
certificate front front-proxy-client front-ca extendedKeyUsage=clientAuth
openssl genrsa -out sa.key 2048
openssl rsa -in sa.key -pubout -out sa.pub

account() { # NAME TOKEN
  cat >"$1.kubeconfig" <<EOF
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://$server_ip:6443", certificate-authority-data: $(base64 -w0 ca.crt)}}]
users: [{name: u, user: {token: $2}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
EOF
}
admin=$(openssl rand -hex 16)
proxy=$(openssl rand -hex 16)
printf '%s,admin,admin,system:masters\n%s,system:kube-proxy,kube-proxy\n' "$admin" "$proxy" >tokens.csv
account admin "$admin"
account proxy "$proxy"
touch done
