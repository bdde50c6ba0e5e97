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
	toAsk      = time.Second           // for a request, once connected
	toYield    = 30 * time.Second      // for the one that serves to let go
	lookPeriod = time.Second           // between two looks whether the name is free
	tryPeriod  = 50 * time.Millisecond // between two tries where somebody is just coming or going
)

// Hold is a name that this process has, or had.
type Hold struct {
	name   string
	socket *net.UnixListener
	before *net.UnixConn // to who had the name before and waits until this one serves; nil: nobody
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

// takenBy finds out who has the name. One who does not even listen is none of ours,
// which are for a moment like that at most.
func takenBy(name string) *TakenError {
	conn, err := net.DialUnix("unix", nil, address(name))
	if errors.Is(err, syscall.ECONNREFUSED) {
		time.Sleep(tryPeriod)
		conn, err = net.DialUnix("unix", nil, address(name))
	}
	if err != nil {
		return &TakenError{Name: name, Stranger: errors.Is(err, syscall.ECONNREFUSED), User: unknownUser}
	}
	defer conn.Close() //nolint:errcheck // nothing was sent
	return taken(name, conn)
}

func taken(name string, conn *net.UnixConn) *TakenError {
	peer, err := peerOf(conn)
	if err != nil {
		return &TakenError{Name: name, User: unknownUser}
	}
	return &TakenError{Name: name, Process: int(peer.Pid), Stranger: !trusted(peer), User: int(peer.Uid)}
}

// TakeOver takes a name, from the process that has it where one does, which it asks
// to yield; from is nil where nobody had it. That process waits for Serving before
// it may end. The call waits as long as the other needs to yield, or until ctx is
// done; the error is a *TakenError where a stranger has the name.
func TakeOver(ctx context.Context, name string) (h *Hold, from *Predecessor, err error) {
	var conn *net.UnixConn
	defer func() {
		if err != nil && conn != nil {
			_ = conn.Close() // who has yielded need not wait
		}
	}()
	for {
		h, err := Take(name)
		var other *TakenError
		switch {
		case err == nil:
			h.before = conn
			return h, from, nil
		case !errors.As(err, &other) || other.Stranger:
			return nil, nil, err
		}
		next, answer, err := ask(ctx, name)
		switch {
		case err == nil: // it has given the name up
			if conn != nil {
				_ = conn.Close() // another has been faster, and yields now
			}
			conn, from = next, answer
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		case isGone(err): // it has ended meanwhile, or yielded to another
			time.Sleep(tryPeriod)
		default:
			return nil, nil, fmt.Errorf("%w, and it does not yield: %w", other, err)
		}
	}
}

// isGone says whether a connection has failed because of the end of the other side.
func isGone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNREFUSED)
}

// ask asks who has the name to yield, and returns when it has.
func ask(ctx context.Context, name string) (*net.UnixConn, *Predecessor, error) {
	conn, err := net.DialUnix("unix", nil, address(name))
	if err != nil {
		return nil, nil, err
	}
	who := taken(name, conn)
	if who.Stranger {
		_ = conn.Close() // nothing was sent
		return nil, nil, who
	}
	from := &Predecessor{Peer: Peer{who.Process}}
	_ = conn.SetDeadline(time.Now().Add(toYield)) // fails where the next call does
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	if _, err = io.WriteString(conn, request); err == nil {
		err = json.NewDecoder(conn).Decode(&from.State)
	}
	if err != nil {
		_ = conn.Close() // the error says more
		return nil, nil, err
	}
	return conn, from, nil
}

// Serving tells the process that has yielded, if one has, that this one does its
// work. It may be called more than once.
func (h *Hold) Serving() {
	if h.before != nil {
		_ = h.before.Close() // which is what tells it; it may be done already
	}
}

// Successor waits until another process asks to take over, or ctx ends, and then is
// nil.
func (h *Hold) Successor(ctx context.Context) (*Successor, error) {
	_ = h.socket.SetDeadline(time.Time{}) // as Accept would say
	defer context.AfterFunc(ctx, func() { _ = h.socket.SetDeadline(time.Now()) })()
	for {
		conn, err := h.socket.AcceptUnix()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close() // who asks tries again
			}
			return nil, nil //nolint:nilnil // nobody came, and that is no error
		case errors.Is(err, net.ErrClosed):
			return nil, fmt.Errorf("waiting for who takes over: %w", err)
		case err != nil: // descriptors are used up
			time.Sleep(tryPeriod)
			continue
		}
		if peer, asks := asks(conn); asks {
			return &Successor{Peer: peer, hold: h, conn: conn}, nil
		}
		_ = conn.Close() // it only looked, or may not ask
	}
}

// asks says whether who has connected asks to take over, and may.
func asks(conn *net.UnixConn) (Peer, bool) {
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

// Yield gives the name up and hands state over, as JSON. It waits 30 s at most for
// the other to take it. The one that has asked may be gone by then: Regain finds out.
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

// Regain waits until nobody has the name, and takes it again. Where ctx ends before,
// it returns ctx's error, but not before the other one serves: until then this one
// is all that there is.
func (s *Successor) Regain(ctx context.Context) error {
	_ = s.conn.SetDeadline(time.Time{})
	_, _ = s.conn.Read(make([]byte, 1)) // it ends when the other serves, or has ended
	_ = s.conn.Close()                  // nothing more is said
	look := time.NewTicker(lookPeriod)
	defer look.Stop()
	for s.hold.bind() != nil { // it is the other's, or descriptors are used up
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
		}
	}
	return nil
}

// Release gives the name up.
func (h *Hold) Release() {
	h.Serving()
	_ = h.socket.Close() // it has been given up, or is now
}

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
