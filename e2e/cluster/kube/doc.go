// Command kube is Kubernetes in one binary: kube-apiserver, kube-scheduler,
// kube-controller-manager, kubelet, kube-proxy and kubectl, as their modules have
// them, an etcd, and a small DNS server in CoreDNS' place. Its first argument, or
// the name that it is called by, says which it is to be.
//
// It is for a cluster on one machine, where each program once linked, rather
// than seven times, is what fits: see the scripts in the directory above.
package main
