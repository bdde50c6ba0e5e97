package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// pause is what a long connection or sender leaves between two questions, and
// before it begins anew.
const pause = 200 * time.Millisecond

type options struct {
	tcp, udp  []string // addresses
	perSecond int      // short connections
	long      int
	patience  time.Duration // with a connection, and with each answer
	during    string
	from      string
}

// result is what is printed.
type result struct {
	During    string  `json:"during"`
	From      string  `json:"from"`
	Seconds   float64 `json:"seconds"`
	Short     tally   `json:"short"`     // connections with one question each
	Long      tally   `json:"long"`      // connections that stay, with a question each 200 ms
	Datagrams tally   `json:"datagrams"` // of senders that send one
	Senders   tally   `json:"senders"`   // datagrams of senders that stay
}

// tally counts connections or datagrams.
type tally struct {
	Tried int            `json:"tried"`
	Lost  map[string]int `json:"lost,omitempty"` // by cause

	mu sync.Mutex
}

func (t *tally) try() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Tried++
}

// lose counts what has failed; nil is none.
func (t *tally) lose(err error) {
	if err == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.Lost == nil {
		t.Lost = make(map[string]int)
	}
	t.Lost[cause(err)]++
}

// cause is a short word for why a connection or datagram was lost.
func cause(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "timed out"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "closed early"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "unreachable"
	}
	return err.Error()
}

// run loads until ctx ends, and returns when all that has begun has ended.
func run(ctx context.Context, o options) *result {
	r := &result{During: o.during, From: o.from}
	began := time.Now()
	var all sync.WaitGroup
	all.Go(func() {
		each(ctx, time.Second/time.Duration(o.perSecond), o.tcp, func(at string) { short(o, at, &r.Short) })
	})
	all.Go(func() {
		each(ctx, 2*time.Second/time.Duration(o.perSecond), o.udp, func(at string) { datagram(o, at, &r.Datagrams) })
	})
	for i := range o.long {
		all.Go(func() { repeat(ctx, func() { long(ctx, o, o.tcp[i%len(o.tcp)], &r.Long) }) })
		all.Go(func() { repeat(ctx, func() { sender(ctx, o, o.udp[i%len(o.udp)], &r.Senders) }) })
	}
	all.Wait()
	r.Seconds = time.Since(began).Seconds()
	return r
}

// each starts something for one address after the other, until ctx ends, and waits
// for all that it has started.
func each(ctx context.Context, apart time.Duration, addresses []string, start func(at string)) {
	var started sync.WaitGroup
	defer started.Wait()
	tick := time.NewTicker(apart)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			started.Go(func() { start(addresses[i%len(addresses)]) })
		}
	}
}

// repeat does something again and again, with a pause, until ctx ends.
func repeat(ctx context.Context, do func()) {
	for ctx.Err() == nil {
		do()
		wait(ctx, pause)
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// short asks once, over a connection of its own.
func short(o options, at string, t *tally) {
	t.try()
	t.lose(func() error {
		conn, err := net.DialTimeout("tcp", at, o.patience)
		if err != nil {
			return err
		}
		defer conn.Close() //nolint:errcheck // it was answered, or is lost already
		return ask(conn, bufio.NewReader(conn), o.patience)
	}())
}

// long asks over one connection until that breaks, or ctx ends.
func long(ctx context.Context, o options, at string, t *tally) {
	t.try()
	t.lose(func() error {
		conn, err := net.DialTimeout("tcp", at, o.patience)
		if err != nil {
			return err
		}
		defer conn.Close() //nolint:errcheck // as above
		answers := bufio.NewReader(conn)
		for ctx.Err() == nil {
			if err := ask(conn, answers, o.patience); err != nil {
				return err
			}
			wait(ctx, pause)
		}
		return nil
	}())
}

// ask sends a request and reads the answer to it.
func ask(conn net.Conn, answers *bufio.Reader, patience time.Duration) error {
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "GET /hostname HTTP/1.1\r\nHost: web\r\n\r\n"); err != nil {
		return err
	}
	answer, err := http.ReadResponse(answers, nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close() //nolint:errcheck // read to its end
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", answer.StatusCode)
	}
	return nil
}

// datagram asks once, from a port of its own.
func datagram(o options, at string, t *tally) {
	conn, err := net.Dial("udp", at)
	if err == nil {
		defer conn.Close() //nolint:errcheck // nothing is kept back
		err = exchange(conn, 0, o.patience)
	}
	t.try()
	t.lose(err)
}

// sender asks from one port until ctx ends, answered or not.
func sender(ctx context.Context, o options, at string, t *tally) {
	conn, err := net.Dial("udp", at)
	if err != nil {
		t.lose(err)
		return
	}
	defer conn.Close() //nolint:errcheck // as above
	for i := 0; ctx.Err() == nil; i++ {
		t.try()
		t.lose(exchange(conn, i, o.patience))
		wait(ctx, pause)
	}
}

// exchange sends a question with a number, and waits for the answer to this one.
func exchange(conn net.Conn, number int, patience time.Duration) error {
	text := fmt.Sprint(number)
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "echo "+text); err != nil {
		return err
	}
	answer := make([]byte, 512)
	for {
		n, err := conn.Read(answer)
		if err != nil {
			return err
		}
		if strings.TrimSpace(string(answer[:n])) == text {
			return nil
		}
	}
}
