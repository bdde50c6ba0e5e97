// Package kubeproxy reads and writes kube-proxy's configuration file, a
// KubeProxyConfiguration of kubeproxy.config.k8s.io/v1alpha1, as kubeadm and
// people have written it for kube-proxies of many ages.
//
// It knows the form of the file, and which of its fields concern what only a
// proxy in the kernel does. What the other fields come to is for the commands
// to say. It touches no files.
package kubeproxy
