package load

import (
	"context"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Listeners are addresses to serve, all IPv4.
type Listeners struct {
	Echo      []netip.AddrPort // TCP: what comes is sent back
	Sink      []netip.AddrPort // TCP: what comes is thrown away
	Datagrams []netip.AddrPort // UDP: what comes is sent back
}

// Server answers what Jobs send, in one loop for each CPU.
type Server struct {
	epolls    []int
	listeners []int
	next      atomic.Uint32 // loop for the next connection
}

// kinds of descriptors, which come along with their events.
const (
	echoListener = iota
	sinkListener
	echoConn
	sinkConn
	datagrams
)

// Listen opens the sockets. The caller calls Serve, which closes them.
func Listen(l Listeners) (s *Server, err error) {
	s = new(Server)
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	for range runtime.NumCPU() {
		epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			return nil, os.NewSyscallError("epoll_create", err)
		}
		s.epolls = append(s.epolls, epoll)
	}
	for _, group := range []struct {
		addrs            []netip.AddrPort
		socketType, kind int
	}{
		{l.Echo, unix.SOCK_STREAM, echoListener},
		{l.Sink, unix.SOCK_STREAM, sinkListener},
		{l.Datagrams, unix.SOCK_DGRAM, datagrams},
	} {
		for _, addr := range group.addrs {
			if err := s.listen(addr, group.socketType, group.kind); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

func (s *Server) listen(addr netip.AddrPort, socketType, kind int) error {
	fd, err := listen(addr, socketType)
	if err != nil {
		return err
	}
	s.listeners = append(s.listeners, fd)
	if socketType == unix.SOCK_DGRAM {
		return watch(s.nextEpoll(), fd, unix.EPOLLIN, fd, kind)
	}
	for _, epoll := range s.epolls { // whichever is awake accepts
		if err := watch(epoll, fd, unix.EPOLLIN|unix.EPOLLEXCLUSIVE, fd, kind); err != nil {
			return err
		}
	}
	return nil
}

// nextEpoll spreads descriptors evenly.
func (s *Server) nextEpoll() int { return s.epolls[int(s.next.Add(1))%len(s.epolls)] }

// Serve serves until ctx ends. Connections end with the process.
func (s *Server) Serve(ctx context.Context) {
	var wg sync.WaitGroup
	for _, epoll := range s.epolls {
		wg.Go(func() { s.loop(ctx, epoll) })
	}
	wg.Wait()
	s.close()
}

func (s *Server) close() {
	for _, fd := range append(s.listeners, s.epolls...) {
		_ = unix.Close(fd)
	}
}

func (s *Server) loop(ctx context.Context, epoll int) {
	events := make([]unix.EpollEvent, maxEvents)
	buf := make([]byte, 64<<10)
	for ctx.Err() == nil {
		for _, event := range events[:wait(epoll, events, 200*time.Millisecond)] {
			fd := int(event.Fd)
			switch event.Pad {
			case echoListener:
				s.accept(fd, unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLET, echoConn)
			case sinkListener:
				s.accept(fd, unix.EPOLLIN, sinkConn)
			case echoConn:
				echo(fd, event.Events, buf)
			case sinkConn:
				sink(fd)
			case datagrams:
				echoDatagrams(fd, buf)
			}
		}
	}
}

func (s *Server) accept(listener int, events uint32, kind int) {
	for {
		fd, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(listener), 0, 0, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0, 0)
		if errno != 0 {
			return // EAGAIN, or one that went away again
		}
		if watch(s.nextEpoll(), int(fd), events, int(fd), kind) != nil {
			_ = unix.Close(int(fd))
		}
	}
}

// echo sends back what is there. A client that does not read its answers is
// none of ours: it loses its connection.
func echo(fd int, events uint32, buf []byte) {
	for {
		n, err := unix.Read(fd, buf)
		if err == unix.EAGAIN {
			return
		}
		if n <= 0 {
			_ = unix.Close(fd)
			return
		}
		if m, _ := unix.Write(fd, buf[:n]); m < n {
			_ = unix.Close(fd)
			return
		}
		// A short read has taken all there was, and an end that comes later is
		// an event of its own.
		if n < len(buf) && events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) == 0 {
			return
		}
	}
}

// sink has the kernel throw away what is there: with MSG_TRUNC a TCP socket
// copies nothing (tcp(7)).
func sink(fd int) {
	const most = 1 << 20
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), 0, most, unix.MSG_TRUNC, 0, 0)
	if errno == unix.EAGAIN {
		return
	}
	if errno != 0 || n == 0 {
		_ = unix.Close(fd)
	}
}

// echoDatagrams sends back some of what is there, to whom it came from.
func echoDatagrams(fd int, buf []byte) {
	for range 32 {
		var from unix.RawSockaddrInet4
		n, size, errno := receiveFrom(fd, buf, &from)
		if errno != 0 {
			return
		}
		sendTo(fd, buf[:n], &from, size)
	}
}

// receiveFrom and sendTo are unix.Recvfrom and unix.Sendto without the address
// that those allocate.
func receiveFrom(fd int, buf []byte, from *unix.RawSockaddrInet4) (n int, size uint32, errno syscall.Errno) {
	size = unix.SizeofSockaddrInet4
	m, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(len(buf)), 0,
		uintptr(unsafe.Pointer(from)), uintptr(unsafe.Pointer(&size)))
	return int(m), size, errno
}

func sendTo(fd int, b []byte, to *unix.RawSockaddrInet4, size uint32) {
	_, _, _ = unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0,
		uintptr(unsafe.Pointer(to)), uintptr(size))
}
