// Package config holds the Services to proxy. As in kube-proxy, "config" means
// them, not the settings of this program.
//
// A ServiceConfig merges what its sources say (a file, the Kubernetes API,
// etcd), each by channels of its own for Services and for endpoints, and
// notifies handlers with whole snapshots. Resolve, a pure function, turns a
// snapshot and the facts of a node into the service ports that must be served
// and the problems that stand in the way.
//
// The package owns the merge and the meaning of every field of a Service. It
// opens no file, no socket and no client: that is for the sources, in a
// directory each below this one, so that their libraries stay there.
package config
