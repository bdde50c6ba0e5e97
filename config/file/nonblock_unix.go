//go:build unix

package file

import "syscall"

// nonblock keeps open from waiting for somebody at a pipe's other end.
const nonblock = syscall.O_NONBLOCK
