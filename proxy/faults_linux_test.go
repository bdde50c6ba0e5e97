//go:build linux && !portable

package proxy

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A slow reader costs the proxy one chunk of memory, or one pipe, and besides
// the kernel's buffers nothing else, however much waits for it and for however
// long: what is not taken is not read. Waiting longer changes nothing, so this
// test need not wait for a minute.
func TestASlowReaderHoldsABoundedAmount(t *testing.T) {
	t.Parallel()
	f, client, endpoint := through(t, Config{})
	held := func() (chunks, inPipes, sides int) {
		for _, l := range f.shared.tcp.loops {
			l.call(func() {
				for s := range l.sessions {
					for _, e := range []*end{&s.client, &s.endpoint} {
						if e.held != nil {
							assert.LessOrEqual(t, len(e.held.bytes), chunk)
							chunks++
						}
						inPipes += e.inPipe
						if e.waiting() {
							sides++
						}
					}
				}
			})
		}
		return chunks, inPipes, sides
	}
	for _, c := range []*net.TCPConn{client, endpoint} { // each writes, and neither reads
		block := random(1 << 20)
		for moved := 1; moved > 0; { // until not a byte more is taken
			require.NoError(t, c.SetWriteDeadline(time.Now().Add(time.Second)))
			moved, _ = c.Write(block)
		}
	}
	chunks, inPipes, sides := held()
	assert.Equal(t, 2, sides, "both directions wait")
	assert.LessOrEqual(t, chunks, 2)
	assert.LessOrEqual(t, inPipes, 2*pipeSize)
}
