package load

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long setting up a connection, or an answer on one, may take.
const patience = 5 * time.Second

// maxEvents is how many events one wake-up takes.
const maxEvents = 256

// watch has an epoll tell of a descriptor's events; id and kind come along.
func watch(epoll, fd int, events uint32, id, kind int) error {
	event := unix.EpollEvent{Events: events, Fd: int32(id), Pad: int32(kind)}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &event))
}

// wait sleeps until there are events, for d at most. It returns how many.
func wait(epoll int, events []unix.EpollEvent, d time.Duration) int {
	// Rounded up: epoll knows milliseconds, and 0 would be no sleep.
	n, err := unix.EpollWait(epoll, events, int((max(d, 0)+time.Millisecond-1)/time.Millisecond))
	if err != nil { // EINTR
		return 0
	}
	return n
}

func sockaddr(a netip.AddrPort) *unix.SockaddrInet4 {
	return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
}

// dial opens a blocking socket of a type and connects it.
func dial(to unix.Sockaddr, socketType int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, socketType|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	limit := unix.NsecToTimeval(patience.Nanoseconds())
	err = errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit), // bounds connect too
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
	)
	if err == nil {
		err = os.NewSyscallError("connect", retry(func() error { return unix.Connect(fd, to) }))
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// listen opens a socket that does not block, and has it listen if it is a
// stream's.
func listen(on netip.AddrPort, socketType int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, socketType|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil {
		err = unix.Bind(fd, sockaddr(on))
	}
	if err == nil && socketType == unix.SOCK_STREAM {
		err = unix.Listen(fd, 1<<16-1)
	}
	if err != nil {
		return -1, errors.Join(fmt.Errorf("listening on %s: %w", on, err), unix.Close(fd))
	}
	return fd, nil
}

// retry calls a function again that a signal has interrupted.
func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
