// Package file is the source of Services that are written in files.
//
// It owns the way from paths to whole states: which files a path means, when
// they have changed, and which of two files has an object. It watches
// directories and polls slowly beside that, and hands whole states to a
// config.ServiceConfig.
//
// Reading objects from bytes is for package manifest, what a Service means for
// package config. This package opens files only, never a socket, and writes
// nothing.
//
// A fault is handled by the rule "stale beats partial": at the start it is an
// error, later the file keeps its last good content and the fault is a
// reported problem, while all other files go on.
package file
