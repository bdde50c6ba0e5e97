package status

import (
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	logtest "github.com/sirupsen/logrus/hooks/test"
)

// TestListen_noIPv6: on a machine without IPv6 the port is that of IPv4, and not a
// word is said of the other; who names an IPv6 address is told.
func TestListen_noIPv6(t *testing.T) {
	t.Parallel()
	log, said := logtest.NewNullLogger()
	withoutIPv6(t, func() {
		s, err := Listen(complete(Config{HealthAddress: ":0", HardFail: true, Log: log}))
		if !assert.NoError(t, err) {
			return
		}
		defer s.Close()
		if assert.Len(t, s.Addresses(), 1) {
			assert.Equal(t, "0.0.0.0", s.Addresses()[0].(*net.TCPAddr).IP.String())
		}
		_, err = Listen(complete(Config{HealthAddress: "[::]:0", HardFail: true, Log: log}))
		assert.EqualError(t, err, "--healthz-bind-address [::]:0: socket: address family not supported by protocol")
	})
	require.Len(t, said.AllEntries(), 1)
	assert.Equal(t, logrus.InfoLevel, said.LastEntry().Level)
}

// withoutIPv6 calls a function as on a kernel without IPv6. It does so on a thread that
// the kernel lets have no such sockets, and that ends with it.
func withoutIPv6(t *testing.T, f func()) {
	t.Helper()
	const number, firstArgument = 0, 16 // in struct seccomp_data
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_SOCKET, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: firstArgument},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.AF_INET6, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked
		program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if assert.NoError(t, err) {
			err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
		}
		if assert.NoError(t, err) {
			f()
		}
	}()
	<-done
}

// TestServer_holdersOfConnections: whoever opens connections and says nothing, or asks
// and stays, keeps nobody out, and takes no more descriptors than are meant for it.
// It is not parallel, so that the descriptors are its own.
func TestServer_holdersOfConnections(t *testing.T) {
	health, all := serve(t, Config{})
	for _, url := range []string{health, all} {
		address := url[len("http://"):]
		before := descriptors(t)
		const held = 5 * mostConnections
		for i := range held {
			c, err := net.DialTimeout("tcp", address, time.Minute)
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close() })
			if i%2 == 0 {
				_, err = io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
				require.NoError(t, err)
			}
		}
		// It is accepted after those that came before it.
		assert.Equal(t, http.StatusOK, ask(t, http.MethodGet, url+"/livez").code)
		assert.LessOrEqual(t, descriptors(t), before+held+2*mostConnections, "%s: this test's, the server's, and some that are just being closed", url)
	}
}

// descriptors is how many this process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(open)
}
