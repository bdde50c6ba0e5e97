// Package file is the source of Services that are written in files.
//
// It owns the way from bytes to objects: which files a path means, YAML and
// JSON, many documents, List kinds, the first service proxy's own form, the
// defaults that an API server would fill in, and a message for everything that
// can be wrong, with file, line, object and field. It watches directories and
// polls slowly beside that, and hands whole states to a config.ServiceConfig.
//
// What a Service means is for package config. This package opens files only,
// never a socket, and writes nothing.
//
// A fault is handled by the rule "stale beats partial": at the start it is an
// error, later the file keeps its last good content and the fault is a
// reported problem, while all other files go on.
package file
