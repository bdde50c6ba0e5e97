// Package status is the proxy's window: an HTTP server that tells probes
// whether the proxy does its work, Prometheus what it counts, and people what
// it serves and why.
//
// It owns its sockets and the form of what it says. What there is to say it is
// given by functions, which it calls for each request. It changes nothing and
// answers GET and HEAD only; what is more than health it tells those alone who
// ask by a name or an address of the node, and never with a password in it.
package status
