package load

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve serves all three ways on an address of loopback, each on a free port.
func serve(t *testing.T) Listeners {
	t.Helper()
	free := func(network string) netip.AddrPort {
		if network == "udp" {
			c, err := net.ListenPacket(network, "127.0.0.1:0")
			require.NoError(t, err)
			defer c.Close()
			return netip.MustParseAddrPort(c.LocalAddr().String())
		}
		l, err := net.Listen(network, "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		return netip.MustParseAddrPort(l.Addr().String())
	}
	l := Listeners{Echo: []netip.AddrPort{free("tcp")}, Sink: []netip.AddrPort{free("tcp")}, Datagrams: []netip.AddrPort{free("udp")}}
	s, err := Listen(l)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return l
}

func TestRun(t *testing.T) {
	t.Parallel()
	l := serve(t)
	for mode, addr := range map[Mode]netip.AddrPort{
		PingPong: l.Echo[0], Connect: l.Echo[0], Idle: l.Echo[0], Bulk: l.Sink[0], UDP: l.Datagrams[0], UDPNew: l.Datagrams[0],
	} {
		for _, flows := range []int{1, 5, 70} {
			t.Run(string(mode), func(t *testing.T) {
				t.Parallel()
				var r Result
				for d := 50 * time.Millisecond; r.Ops+r.Bytes == 0 && d < time.Minute; d *= 4 { // a busy machine needs more
					ready := 0
					var err error
					r, err = Job{Mode: mode, Addr: addr, Flows: flows, Size: 64, Duration: d}.Run(func() error { ready++; return nil })
					require.NoError(t, err)
					require.Equal(t, 1, ready)
				}
				assert.Positive(t, r.Elapsed)
				assert.Zero(t, r.Errors)
				switch mode {
				case Bulk:
					assert.Positive(t, r.Bytes)
				case Idle:
					assert.EqualValues(t, flows, r.Held)
					assert.EqualValues(t, flows, r.Ops)
				default:
					assert.Positive(t, r.Ops)
					assert.Positive(t, r.P50)
					assert.GreaterOrEqual(t, r.P99, r.P50)
				}
			})
		}
	}
}

// TestRun_failing: what stays is not set up where nobody answers, and what is
// opened anew each time fails at a rate that is bounded.
func TestRun_failing(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	nobody := netip.MustParseAddrPort(l.Addr().String())
	require.NoError(t, l.Close())

	none := func() error { return nil }
	for _, mode := range []Mode{PingPong, Bulk} {
		_, err := Job{Mode: mode, Addr: nobody, Flows: 2, Size: 64, Duration: time.Millisecond}.Run(none)
		assert.ErrorIs(t, err, unix.ECONNREFUSED, string(mode))
	}
	r, err := Job{Mode: Connect, Addr: nobody, Flows: 2, Size: 64, Duration: 50 * time.Millisecond}.Run(none)
	require.NoError(t, err)
	assert.Zero(t, r.Ops)
	assert.Less(t, r.Errors, uint64(100), "what fails is not tried again at once")

	r, err = Job{Mode: Idle, Addr: nobody, Flows: 3}.Run(none)
	require.NoError(t, err)
	assert.Equal(t, Result{Elapsed: r.Elapsed, Errors: 3}, r)

	refuse := errors.New("not ready")
	_, err = Job{Mode: Connect, Addr: nobody, Flows: 2, Size: 64, Duration: time.Hour}.Run(func() error { return refuse })
	assert.ErrorIs(t, err, refuse)
}

// TestRun_closing: a server that closes is errors, not answers.
func TestRun_closing(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	defer func() { _ = l.Close(); <-done }()
	var r Result
	for d := 50 * time.Millisecond; r.Errors == 0 && d < time.Minute; d *= 4 {
		r, err = Job{Mode: Connect, Addr: netip.MustParseAddrPort(l.Addr().String()), Flows: 4, Size: 64, Duration: d}.Run(func() error { return nil })
		require.NoError(t, err)
		assert.Zero(t, r.Ops)
	}
	assert.Positive(t, r.Errors)
}

func TestJob_validate(t *testing.T) {
	t.Parallel()
	good := Job{Mode: PingPong, Addr: netip.MustParseAddrPort("127.0.0.1:1"), Flows: 1, Size: 8}
	require.NoError(t, good.Validate())
	for name, change := range map[string]func(*Job){
		"mode":    func(j *Job) { j.Mode = "juggle" },
		"family":  func(j *Job) { j.Addr = netip.MustParseAddrPort("[::1]:1") },
		"port":    func(j *Job) { j.Addr = netip.MustParseAddrPort("127.0.0.1:0") },
		"flows":   func(j *Job) { j.Flows = 0 },
		"message": func(j *Job) { j.Size = 7 },
	} {
		bad := good
		change(&bad)
		assert.Error(t, bad.Validate(), name)
	}
}
