// Package etcd is the source of Services that are read from an etcd directly,
// the one below a Kubernetes API server for instance, without that server.
//
// It owns the way from keys to objects: which keys are read, at which revision,
// in which of the forms that Kubernetes stores them or people write them, and
// what is done when the history of the keys breaks off: a compaction, a server
// that is gone, a cluster restored from a backup. Each time everything is listed
// again, so that what is served is always what a fresh start would serve.
//
// What a Service means is for package config. This package only reads.
//
// A value that cannot be read is a reported problem, and its object's last good
// state stays. An etcd that cannot be reached takes nothing away.
package etcd
