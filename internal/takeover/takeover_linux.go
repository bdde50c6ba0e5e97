package takeover

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	request    = "take over\n"
	toAsk      = time.Second      // for a request, once connected
	toYield    = 30 * time.Second // for the one that serves to let go
	lookPeriod = time.Second      // between two looks whether the name is free
)

// Hold is a name that this process has, or had.
type Hold struct {
	name   string
	socket *net.UnixListener
}

// Take takes a name that nobody has. The error is a *TakenError where another
// process has it.
func Take(name string) (*Hold, error) {
	h := &Hold{name: name}
	err := h.bind()
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, takenBy(name)
	}
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (h *Hold) bind() error {
	socket, err := net.ListenUnix("unix", address(h.name))
	if err != nil {
		return fmt.Errorf("taking the name %s: %w", h.name, err)
	}
	h.socket = socket
	return nil
}

func address(name string) *net.UnixAddr { return &net.UnixAddr{Name: "@" + name, Net: "unix"} }

// takenBy finds out who has the name.
func takenBy(name string) error {
	conn, err := net.DialUnix("unix", nil, address(name))
	if err != nil {
		return &TakenError{Name: name} // who it was is gone, or does not answer
	}
	defer conn.Close() //nolint:errcheck // nothing was sent
	return taken(name, conn)
}

func taken(name string, conn *net.UnixConn) *TakenError {
	peer, err := peerOf(conn)
	if err != nil {
		return &TakenError{Name: name}
	}
	return &TakenError{Name: name, Process: int(peer.Pid), Stranger: !trusted(peer), User: int(peer.Uid)}
}

// TakeOver takes a name, from the process that has it where one does, which it asks
// to yield. What that process hands over is decoded into state, which is left alone
// where nobody had the name; from is nil then too.
func TakeOver(ctx context.Context, name string, state any) (h *Hold, from *Peer, err error) {
	for ctx.Err() == nil {
		h, err = Take(name)
		if !errors.As(err, new(*TakenError)) {
			return h, nil, err
		}
		conn, err := net.DialUnix("unix", nil, address(name))
		if errors.Is(err, syscall.ECONNREFUSED) {
			continue // it has ended meanwhile
		}
		if err != nil {
			return nil, nil, fmt.Errorf("asking who has the name %s: %w", name, err)
		}
		return takeFrom(ctx, conn, name, state)
	}
	return nil, nil, ctx.Err()
}

// takeFrom asks the process at the other end. That one waits for the connection to
// end before it looks whether the name is free, so this takes the name before.
func takeFrom(ctx context.Context, conn *net.UnixConn, name string, state any) (*Hold, *Peer, error) {
	defer conn.Close() //nolint:errcheck // all is said, or an error is returned
	who := taken(name, conn)
	if who.Stranger {
		return nil, nil, who
	}
	failed := func(err error) error {
		return fmt.Errorf("%w, and it does not yield: %w", who, err)
	}
	_ = conn.SetDeadline(time.Now().Add(toYield)) // fails where the next call does
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	if _, err := io.WriteString(conn, request); err != nil {
		return nil, nil, failed(err)
	}
	if err := json.NewDecoder(conn).Decode(state); err != nil {
		return nil, nil, failed(err)
	}
	h, err := Take(name)
	return h, &Peer{Process: who.Process}, err
}

// Successor waits until another process asks to take over, or ctx ends, and then is
// nil.
func (h *Hold) Successor(ctx context.Context) (*Successor, error) {
	_ = h.socket.SetDeadline(time.Time{}) // as Accept would say
	defer context.AfterFunc(ctx, func() { _ = h.socket.SetDeadline(time.Now()) })()
	for {
		conn, err := h.socket.AcceptUnix()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close() // who asks again is told
			}
			return nil, nil //nolint:nilnil // nobody came, and that is no error
		}
		if err != nil {
			return nil, fmt.Errorf("waiting for who takes over: %w", err)
		}
		if peer, asks := ask(conn); asks {
			return &Successor{Peer: peer, hold: h, conn: conn}, nil
		}
		_ = conn.Close() // it only looked, or may not ask
	}
}

// ask says whether who has connected asks to take over, and may.
func ask(conn *net.UnixConn) (Peer, bool) {
	peer, err := peerOf(conn)
	if err != nil || !trusted(peer) {
		return Peer{}, false
	}
	_ = conn.SetDeadline(time.Now().Add(toAsk)) // fails where the next call does
	line, err := bufio.NewReaderSize(conn, len(request)).ReadString('\n')
	_ = conn.SetDeadline(time.Time{})
	return Peer{Process: int(peer.Pid)}, err == nil && line == request
}

// Successor is a process that has asked to take over, and waits.
type Successor struct {
	Peer
	hold *Hold
	conn *net.UnixConn
}

// Yield gives the name up and hands state over, as JSON. The one that has asked may
// be gone by then: Regain finds out.
func (s *Successor) Yield(state any) error {
	if err := s.hold.socket.Close(); err != nil {
		return fmt.Errorf("giving up the name %s: %w", s.hold.name, err)
	}
	_ = s.conn.SetDeadline(time.Now().Add(toYield)) // fails where the next call does
	if err := json.NewEncoder(s.conn).Encode(state); err != nil {
		return fmt.Errorf("yielding to %v: %w", s.Peer, err)
	}
	return nil
}

// Regain waits until nobody has the name, and takes it again. It returns ctx's error
// where that ends before.
func (s *Successor) Regain(ctx context.Context) error {
	defer s.conn.Close() //nolint:errcheck // nothing is sent any more
	stop := context.AfterFunc(ctx, func() { _ = s.conn.SetDeadline(time.Now()) })
	_ = s.conn.SetDeadline(time.Now().Add(toYield))
	_, _ = s.conn.Read(make([]byte, 1)) // it ends when the other has the name, or has ended
	stop()
	look := time.NewTicker(lookPeriod)
	defer look.Stop()
	for ctx.Err() == nil {
		err := s.hold.bind()
		if !errors.Is(err, syscall.EADDRINUSE) {
			return err
		}
		select {
		case <-ctx.Done():
		case <-look.C:
		}
	}
	return ctx.Err()
}

// Release gives the name up.
func (h *Hold) Release() { _ = h.socket.Close() } // it has been, or is now

// peerOf is the process at the other end, as the kernel knows it.
func peerOf(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var peer *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return peer, errors.Join(err, failed)
}

// trusted says whether a process may have or ask for this one's place: one of root's
// or of the same user's.
func trusted(peer *unix.Ucred) bool { return peer.Uid == 0 || int(peer.Uid) == os.Geteuid() }
