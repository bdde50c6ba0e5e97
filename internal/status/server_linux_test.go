package status

import (
	"net"
	"runtime"
	"testing"
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
