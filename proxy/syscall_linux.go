//go:build linux && !portable

package proxy

import (
	"net/netip"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls of the data path. None of them waits, or not for long, so they go
// past the scheduler (RawSyscall), which otherwise gets ready for a call that
// does, and wakes the runtime's monitor to watch over it. epollSleep is the
// exception.

func readFD(fd int, b []byte) (int, syscall.Errno) {
	n, _, err := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return orZero(n, err), err
}

func writeFD(fd int, b []byte) (int, syscall.Errno) {
	n, _, err := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return orZero(n, err), err
}

// splice moves up to n bytes between a pipe and a socket.
func splice(from, to, n int) (int, syscall.Errno) {
	const flags = unix.SPLICE_F_MOVE | unix.SPLICE_F_NONBLOCK
	m, _, err := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(from), 0, uintptr(to), 0, uintptr(n), flags)
	return orZero(m, err), err
}

// acceptFD takes a connection that waits, and says whose it is.
func acceptFD(fd int) (int, netip.AddrPort, syscall.Errno) {
	var name unix.RawSockaddrInet6
	size := uint32(unix.SizeofSockaddrInet6)
	conn, _, err := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(fd), uintptr(unsafe.Pointer(&name)), uintptr(unsafe.Pointer(&size)), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0, 0)
	if err != 0 {
		return -1, netip.AddrPort{}, err
	}
	client := addrPort(&name)
	return int(conn), netip.AddrPortFrom(client.Addr().Unmap(), client.Port()), 0
}

// socketFD makes a TCP socket that does not wait.
func socketFD(domain int) (int, syscall.Errno) {
	fd, _, err := unix.RawSyscall(unix.SYS_SOCKET, uintptr(domain), unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != 0 {
		return -1, err
	}
	return int(fd), 0
}

func setOptionFD(fd, level, option int, value int32) syscall.Errno {
	_, _, err := unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option), uintptr(unsafe.Pointer(&value)), unsafe.Sizeof(value), 0)
	return err
}

func shutdownFD(fd, how int) {
	_, _, _ = unix.RawSyscall(unix.SYS_SHUTDOWN, uintptr(fd), uintptr(how), 0)
}

func closeFD(fd int) {
	_, _, _ = unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0)
}

func epollCtl(epoll, op, fd int, event *unix.EpollEvent) syscall.Errno {
	_, _, err := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(epoll), uintptr(op), uintptr(fd), uintptr(unsafe.Pointer(event)), 0, 0)
	return err
}

// epollWait is how many events there are now, or soon: it waits past the
// scheduler, whose processor it keeps, for at most patience. A signal ends it.
func epollWait(epoll int, events []unix.EpollEvent, patience time.Duration) int {
	n, _, err := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), uintptr(milliseconds(patience)), 0, 0)
	return orZero(n, err)
}

// epollSleep waits for events for as long as patience says, below 0 without
// end. A signal ends it.
func epollSleep(epoll int, events []unix.EpollEvent, patience time.Duration) int {
	n, err := unix.EpollWait(epoll, events, milliseconds(patience))
	if err != nil {
		return 0
	}
	return n
}

// milliseconds are what epoll counts in, rounded up: what is due then is due
// when it ends.
func milliseconds(d time.Duration) int {
	if d < 0 {
		return -1
	}
	return int(min((d+time.Millisecond-1)/time.Millisecond, 1<<30))
}

// unsent is the number of bytes that the peer's kernel has not acknowledged and
// still may: none once the connection was reset, though the kernel goes on
// counting them.
func unsent(fd int) int {
	const tcpClose = 7 // TCP_CLOSE, include/net/tcp_states.h
	n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	if err != nil || n == 0 {
		return 0
	}
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil || info.State == tcpClose {
		return 0
	}
	return n
}

// resetOnClose makes close send RST instead of FIN.
func resetOnClose(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
}

// orZero is the result of a call, 0 where it failed.
func orZero(n uintptr, err syscall.Errno) int {
	if err != 0 {
		return 0
	}
	return int(n)
}
