// Package healthport answers load balancers that ask, at a Service's
// healthCheckNodePort, whether this node has endpoints of the Service, as
// kube-proxy does.
//
// It owns a socket for each such port on each address where node ports are
// served. What there is to answer it is told.
package healthport
