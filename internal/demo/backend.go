package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// kind is what a backend speaks.
type kind string

// The kinds of backends.
const (
	kindHTTP kind = "http" // answers with its name
	kindTCP  kind = "tcp"  // says its name, then repeats each line
	kindUDP  kind = "udp"  // repeats each datagram, its name before it
)

// backend is a server that tells its name. It may be started and stopped again
// and again, by one goroutine at a time.
type backend struct {
	name string
	kind kind
	addr netip.AddrPort

	stopServing context.CancelFunc // nil while stopped
	running     sync.WaitGroup
}

// start binds the address; from then on clients are served.
func (b *backend) start() error {
	ctx, cancel := context.WithCancel(context.Background())
	serve, err := b.listen(ctx)
	if err != nil {
		cancel()
		return fmt.Errorf("backend %s: %w", b.name, err)
	}
	b.stopServing = cancel
	b.running.Go(serve)
	return nil
}

// stop closes the address and every connection, and waits until that is done.
func (b *backend) stop() {
	if b.stopServing != nil {
		b.stopServing()
		b.stopServing = nil
	}
	b.running.Wait()
}

// listen binds the address and returns what serves on it until ctx ends.
func (b *backend) listen(ctx context.Context) (serve func(), err error) {
	if b.kind == kindUDP {
		conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(b.addr))
		if err != nil {
			return nil, err // start names the backend, net the address
		}
		return func() { b.serveUDP(ctx, conn) }, nil
	}
	l, err := net.Listen("tcp", b.addr.String())
	if err != nil {
		return nil, err
	}
	if b.kind == kindHTTP {
		return func() { b.serveHTTP(ctx, l) }, nil
	}
	return func() { b.serveTCP(ctx, l) }, nil
}

func (b *backend) hello() string { return "hello from " + b.name + "\n" }

func (b *backend) serveHTTP(ctx context.Context, l net.Listener) {
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(w, b.hello()) // a client that has gone needs none
		}),
		ReadHeaderTimeout: 10 * time.Second,
	}
	server.SetKeepAlivesEnabled(false) // a browser's next request is a new connection too
	over := make(chan struct{})
	defer func() { <-over }()
	context.AfterFunc(ctx, func() {
		defer close(over)
		soon, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if server.Shutdown(soon) != nil { // requests that have come are answered
			_ = server.Close()
		}
	})
	_ = server.Serve(l) // ends when it is shut down
}

func (b *backend) serveTCP(ctx context.Context, l net.Listener) {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	var clients sync.WaitGroup
	defer clients.Wait()
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors: others may return some
			continue
		}
		clients.Go(func() { b.talk(ctx, conn) })
	}
}

// talk says hello and repeats each line until the client has said its last.
func (b *backend) talk(ctx context.Context, conn net.Conn) {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close() //nolint:errcheck // the client has what there was to have
	if _, err := io.WriteString(conn, b.hello()); err != nil {
		return
	}
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		if _, err := fmt.Fprintf(conn, "%s: %s\n", b.name, lines.Text()); err != nil {
			return
		}
	}
}

func (b *backend) serveUDP(ctx context.Context, conn *net.UDPConn) {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	buffer := make([]byte, 65507)
	for {
		n, client, err := conn.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = conn.WriteToUDPAddrPort(append([]byte(b.name+": "), buffer[:n]...), client) // datagrams may be lost
		}
	}
}
