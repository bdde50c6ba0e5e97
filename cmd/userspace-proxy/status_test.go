package main

import (
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestStatus: what the command shows of a proxy that runs, in each of its forms.
func TestStatus(t *testing.T) {
	t.Parallel()
	named(t, "127.66.41.1:8001", "one")
	dir := t.TempDir()
	write(t, dir, "services.yaml", manifest("127.66.41.2", []int{8080}, "127.66.41.1:8001"))
	p, _, at := proxied(t, "", "--file", dir)
	requireAnswer(t, "127.66.41.2:8080", "one")
	find(t, &p.stderr, `msg="serving `)
	conn, err := net.DialTimeout("tcp", "127.66.41.2:8080", patience)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = conn.Read(make([]byte, 4))
	require.NoError(t, err)

	show := func(args ...string) string {
		code, stdout, stderr := run(t, "", append(append([]string{"status"}, args...), "--address", at)...)
		assert.Zero(t, code, stderr)
		assert.Empty(t, stderr)
		assert.NotContains(t, stdout, "\x1b", "no colours off a terminal")
		return stdout
	}
	require.Eventually(t, func() bool {
		return strings.Contains(show("connections"), "\n1 connection and")
	}, patience, 10*time.Millisecond, "the one before ends")
	for _, args := range [][]string{nil, {"web"}, {"default/web"}, {"web", "-n", "default"}} {
		out := show(args...)
		assert.Regexp(t, `^ready: userspace-proxy on here, up \S+, rules: none, `, out)
		assert.Regexp(t, `\nfile +1 +1 +\S+ ago +\S+ ago +in step\n`, out)
		assert.Regexp(t, `\n  at ClusterIP 127.66.41.2:8080 +serving\n`, out)
		assert.Regexp(t, `\n  to 127.66.41.1:8001 +picked +1\n`, out)
	}
	assert.NotContains(t, show("-n", "other"), "127.66.41.2")
	assert.Regexp(t, `\ndefault/web:p8080/TCP +127\.\S+ +127.66.41.1:8001 +open +\S+ +\S+ +0B +4B\n\n1 connection and 0 flows\n$`, show("connections", "web"))
	assert.Equal(t, "0 connections and 0 flows of 1 and 0 that are open\n", show("connections", "-n", "other"))
	assert.Equal(t, "no problems\n", show("problems"))

	var whole statusz
	require.NoError(t, json.Unmarshal([]byte(show("-o", "json")), &whole))
	assert.Len(t, whole.Ports, 1)
	var listed struct {
		Connections []struct{ Service, Endpoint string }
	}
	require.NoError(t, json.Unmarshal([]byte(show("connections", "-o", "json")), &listed))
	require.Len(t, listed.Connections, 1)
	assert.Equal(t, "127.66.41.1:8001", listed.Connections[0].Endpoint)

	code, _, stderr := run(t, "", "status", "nobody", "--address", at)
	assert.Equal(t, 1, code)
	assert.Equal(t, lines(at+" knows no Service of the name nobody"), stderr)
}

// TestStatus_watch: frame after frame until the signal, also while nobody
// answers.
func TestStatus_watch(t *testing.T) {
	t.Parallel()
	p := start(t, "", "status", "--watch", "--interval=1ms", "--address=127.0.0.1:1")
	find(t, &p.stdout, `(?s)(no proxy answers at http://127.0.0.1:1: .*){3}--address says where`)
	p.stop()
	assert.Zero(t, p.wait(t))
	assert.Empty(t, p.stderr.String())
}
