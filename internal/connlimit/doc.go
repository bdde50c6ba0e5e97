// Package connlimit keeps how many connections HTTP servers have open within
// bounds, whoever asks them: each is a file descriptor, and those that idle
// strangers hold would be lacking elsewhere.
//
// It owns the decision which connection gives way, and no connection.
package connlimit
