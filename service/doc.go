// Package service is the vocabulary that every other package shares: what a
// service port, a portal, an endpoint, a redirect and a problem are.
//
// The types are plain values, made by config.Resolve and read by everyone
// else. Nothing here does I/O, and nothing here knows Kubernetes: the package
// imports the standard library alone, so that the balancer, the data path and
// the rules can be read, tested and used without it.
package service
