//go:build !unix

package file

// nonblock is nothing: there are no pipes with names among the files here.
const nonblock = 0
