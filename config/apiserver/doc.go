// Package apiserver is the source of Services that a Kubernetes API server has.
//
// It owns the connection to the server, the watches of Services, of their
// endpoints and of this Node, what is kept of each object, and the judgement
// whether what is known is still true: a server that is gone, that does not
// answer, that refuses, or that comes back with another history than it had.
// Through all of it the last good state stands, and the source says why it is
// not newer.
//
// What a Service means is for package config. Nothing is written to the server
// from here.
package apiserver
