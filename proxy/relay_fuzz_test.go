package proxy

import (
	"bytes"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzRelay has both sides of a connection write, some of it urgent, pause, end
// and reset in any order. What arrives is what was sent, from its beginning; all of it where
// nobody reset.
//
// Each byte of the script is a step: bit 0 says whose, bits 1-3 what, the rest
// how much.
func FuzzRelay(f *testing.F) {
	f.Add([]byte{0x42, 0x83, 0x04, 0x05})
	f.Add([]byte{0xf2, 0xf3, 0xf2, 0xf3, 0x06, 0x07})
	f.Add([]byte{0x04, 0xf3, 0xf3, 0x05})
	f.Add([]byte{0xf0, 0x08, 0xf0, 0x09, 0x07})
	f.Add([]byte{0x0c, 0x0d, 0x0c, 0x0d, 0xf5, 0xfc, 0x07, 0x0d}) // urgent bytes, close to each other
	f.Add([]byte("2\x83\x04u\x1cR\xdb\xf0\v\x8a\x05"))            // both reset while both are written to
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 64 {
			script = script[:64]
		}
		fx := start(t, Config{HalfCloseTimeout: time.Minute})
		addr, conns := one(t)
		fx.serve(addr)
		client := fx.dial()
		var reset atomic.Bool
		sides := [2]*scripted{{conn: client, reset: &reset}, {conn: receive(t, conns), reset: &reset}}
		var wg sync.WaitGroup
		for i, s := range sides {
			wg.Add(2)
			go func() { defer wg.Done(); s.write(script, byte(i)) }()
			go func() { defer wg.Done(); s.got, s.err = io.ReadAll(s.conn) }()
		}
		wg.Wait()
		for i, s := range sides {
			sent := sides[1-i].sent.Bytes()
			require.True(t, bytes.HasPrefix(sent, s.got), "side %d got %d bytes that are not the beginning of the %d sent", i, len(s.got), len(sent))
			if !reset.Load() {
				require.NoError(t, s.err)
				require.Len(t, s.got, len(sent), "side %d: nobody reset, so all of it must arrive", i)
			}
		}
		_ = client.Close()
		fx.drained()
	})
}

// scripted is one side of a connection that does what a script says.
type scripted struct {
	conn  *net.TCPConn
	sent  bytes.Buffer
	reset *atomic.Bool // set before either side resets
	got   []byte
	err   error
}

// write does this side's steps, and ends the stream after the last.
func (s *scripted) write(script []byte, side byte) {
	for i, step := range script {
		if step&1 != side {
			continue
		}
		n := int(step >> 4)
		switch step >> 1 & 7 {
		case 0, 1: // a little
			s.send(random(n + i)[i:])
		case 2: // more than a chunk, often
			s.send(random(n * 10_000))
		case 3:
			time.Sleep(time.Duration(n) * 100 * time.Microsecond)
		case 4:
			_ = s.conn.CloseWrite()
			return
		case 5:
			s.reset.Store(true)
			_ = s.conn.SetLinger(0)
			_ = s.conn.Close()
			return
		case 6:
			b := random(n + 1 + i)[i:]
			s.sent.Write(b)
			sendUrgent(s.conn, b)
		default: // nothing
		}
	}
	_ = s.conn.CloseWrite()
}

func (s *scripted) send(b []byte) {
	s.sent.Write(b) // before it is on its way; of a write that fails a part may arrive
	_, _ = s.conn.Write(b)
}
