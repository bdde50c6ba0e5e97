// Package takeover lets one process take over from another what only one may do
// at a time: serve a node.
//
// Who serves has a [Hold], which is a name. Who comes next asks by that name, and
// the one that serves yields: it lets go of whatever stands in the other's way, hands
// over what the other is to know, and gives the name up. Should the other end, the
// name is free again, and the one that has yielded may [Hold.Regain] it: a new version
// that does not work leaves the old one in its place.
//
// The name is that of an abstract Unix socket (unix(7)), which needs no file, is
// the same for all processes of one network namespace, as pods with hostNetwork are,
// and is free as soon as the process is no more. Any user may ask there, so both
// sides look at whom they talk to.
package takeover
