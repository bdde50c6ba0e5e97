//go:build !linux || portable

package proxy

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// udpLoop moves the datagrams of UDP servers with what every system has: one
// goroutine reads each server's socket, another each flow's. A flow has a
// buffer of 64 KiB, of which only pages that were written to take memory.
//
// It does not mark what goes to endpoints. On a socket that takes what is sent
// to any address of the host, replies leave from the one the system picks:
// listen on each address apart.
type udpLoop struct {
	flows   *udpFlows
	buffers sync.Pool // *[maxDatagram]byte, of flows that have ended
}

func newUDPLoop(u *udpFlows) *udpLoop {
	return &udpLoop{flows: u, buffers: sync.Pool{New: func() any { return new([maxDatagram]byte) }}}
}

func (l *udpLoop) close() {}

// reap has nothing to do: sockets are closed where they end.
func (l *udpLoop) reap(int) bool { return false }

// clientSocket is the socket that a server's clients send to.
type clientSocket struct{ conn *net.UDPConn }

// receiveBuffer is how many bytes of datagrams may wait to be read.
const receiveBuffer = 2 << 20

func (l *udpLoop) listen(s *udpServer, conn *net.UDPConn) error {
	_ = conn.SetReadBuffer(receiveBuffer) // or what the system allows
	s.socket = &clientSocket{conn}
	s.open.Go(func() { l.readClients(s, conn) })
	return nil
}

func (c *clientSocket) close() { _ = c.conn.Close() }

// SyscallConn gives access to the socket, until close.
func (c *clientSocket) SyscallConn() (syscall.RawConn, error) { return c.conn.SyscallConn() }

func (l *udpLoop) readClients(s *udpServer, conn *net.UDPConn) {
	b := make([]byte, maxDatagram)
	var failures int
	for {
		n, from, err := conn.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.readFailed(err)
			failures++
			rest(failures)
			continue
		}
		failures = 0
		client := netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		s.fromClient(b[:n], flowKey{client: client}, l.flows.now())
	}
}

// rest keeps a loop whose every read fails from spinning.
func rest(failures int) {
	if failures > 1 {
		time.Sleep(min(time.Duration(failures)*time.Millisecond, 100*time.Millisecond))
	}
}

// endpointSocket is a flow's connected socket.
type endpointSocket struct {
	conn  *net.UDPConn
	limit flowLimit
}

// dial gives the flow its socket and reads its replies from then on.
func (l *udpLoop) dial(f *udpFlow) error {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(f.endpoint))
	if err != nil {
		return err
	}
	f.socket = endpointSocket{conn, l.flows.limit}
	f.server.open.Go(func() { l.readReplies(f, conn) })
	return nil
}

func (e endpointSocket) close() {
	_ = e.conn.Close()
	e.limit.release()
}

func (e endpointSocket) send(b []byte) error {
	_, err := e.conn.Write(b)
	return err
}

func (l *udpLoop) readReplies(f *udpFlow, conn *net.UDPConn) {
	buffer := l.buffers.Get().(*[maxDatagram]byte)
	defer l.buffers.Put(buffer)
	b := buffer[:]
	var failures int
	for {
		n, err := conn.Read(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			f.server.refused(f)
			failures++
			rest(failures)
			continue
		}
		failures = 0
		if f.server.replied(f, l.flows.now()) {
			f.reply(b[:n])
		} else {
			f.server.drop(dropLate)
		}
	}
}

// reply sends an endpoint's datagram to the client.
func (f *udpFlow) reply(b []byte) {
	conn := f.server.socket.conn
	_, err := conn.WriteToUDPAddrPort(b, f.replyTo.client)
	if err != nil && whySendFailed(err) == dropFailed { // perhaps what became of an earlier one
		_, err = conn.WriteToUDPAddrPort(b, f.replyTo.client)
	}
	if err != nil {
		f.server.drop(whySendFailed(err))
		return
	}
	f.down.count(len(b))
	f.server.account.answered.count(len(b))
}

// replyAddress is where a flow's replies go.
type replyAddress struct{ client netip.AddrPort }

func (c *clientSocket) replyAddress(key flowKey) replyAddress { return replyAddress{key.client} }

// whyDialFailed sorts the errors of dial.
func whyDialFailed(err error) dropReason {
	switch {
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOBUFS):
		return dropNoDescriptor
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EADDRNOTAVAIL):
		return dropNoPort
	}
	return dropUnreachable
}

// whySendFailed sorts the errors of sending.
func whySendFailed(err error) dropReason {
	switch {
	case errors.Is(err, syscall.EMSGSIZE):
		return dropTooBig
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOBUFS):
		return dropBusy
	}
	return dropFailed
}
