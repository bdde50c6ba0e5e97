package status

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/proxy"
)

// say sends raw bytes and returns the answer.
func say(t *testing.T, url, request string) (code int, header http.Header, body string) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.WriteString(conn, request)
	require.NoError(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, answer.Header, string(b)
}

// TestServer_namesOfItsOwn: a page of another name that leads here (DNS
// rebinding) learns nothing.
func TestServer_namesOfItsOwn(t *testing.T) {
	t.Parallel()
	health, all := serve(t, Config{Names: []string{"node-a"}})
	for host, want := range map[string]int{
		"127.0.0.1": 200, "127.0.0.1:10249": 200, "localhost": 200, "LocalHost:1": 200, "localhost.": 200, "[::1]:10249": 200, "[::1]": 200,
		"node-a": 200, "Node-A:10249": 200, "node-a.": 200, "192.0.2.7:80": 200, "[2001:db8::7]": 200, "": 200,
		"evil.example": 421, "evil.example:10249": 421, "node-a.evil.example": 421, "localhost.evil.example": 421,
		"127.0.0.1.evil.example": 421, "xn--node-a": 421, "node-b": 421,
	} {
		for _, path := range []string{"/", "/statusz", "/metrics", "/healthz", "/elsewhere"} {
			code, _, body := say(t, all, fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, host))
			if want == 200 && path == "/elsewhere" {
				assert.Equal(t, 404, code, "%q %s", host, path)
				continue
			}
			assert.Equal(t, want, code, "%q %s", host, path)
			if want == 421 {
				assert.Equal(t, fmt.Sprintf("%q is no name of this server: ask by localhost, node-a, or by an address of this node in numbers\n", host), body)
			}
		}
		code, _, _ := say(t, health, fmt.Sprintf("GET /healthz HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host))
		assert.Equal(t, 200, code, "health is told by whatever name a load balancer has: %q", host)
	}
	code, _, _ := say(t, all, "GET /statusz HTTP/1.0\r\n\r\n")
	assert.Equal(t, 200, code, "HTTP/1.0 has no Host")
	code, _, _ = say(t, all, "GET http://evil.example/statusz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	assert.Equal(t, 421, code, "the request's own URL counts (RFC 9112, 3.2.2)")
}

func TestServer_HEADisGETwithoutABody(t *testing.T) {
	t.Parallel()
	_, all := serve(t, Config{})
	for _, path := range []string{"/", "/statusz", "/metrics", "/healthz"} {
		got := ask(t, http.MethodHead, all+path)
		assert.Equal(t, http.StatusOK, got.code, path)
		assert.Empty(t, got.body, path)
	}
	code, header, body := say(t, all, "POST /elsewhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	assert.Equal(t, http.StatusMethodNotAllowed, code, "no path takes it")
	assert.Equal(t, "GET, HEAD", header.Get("Allow"))
	assert.Equal(t, "this server answers GET and HEAD only\n", body)
}

// TestServer_slowHeaders: who never finishes a request does not keep its
// connection.
func TestServer_slowHeaders(t *testing.T) {
	t.Parallel()
	_, all := serve(t, Config{})
	conn, err := net.Dial("tcp", strings.TrimPrefix(all, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.WriteString(conn, "GET /statusz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, conn)
	assert.NoError(t, err, "the server closes it before the deadline of this test")
}

// TestServer_nothingSecret: what libraries say of the places they ask may have
// passwords in it.
func TestServer_nothingSecret(t *testing.T) {
	t.Parallel()
	const secret = "hunter2hunter2"
	says := []string{
		`Get "https://admin:hunter2hunter2@192.0.2.1:6443/api/v1/services": connect: connection refused`,
		`dial etcd: http://hunter2hunter2@192.0.2.1:2379: no answer`,
		`https://a:hunter2hunter2@one:2379,https://b:hunter2hunter2@two:2379 do not answer`,
		`Unauthorized: Authorization: Bearer hunter2hunter2`,
		`cannot parse "token: hunter2hunter2"`,
		`/var/x?access_token=hunter2hunter2&watch=true failed`,
		`password = 'hunter2hunter2', user = 'x'`,
		`{"token":"hunter2hunter2","client_secret":"x"}`,
	}
	for _, message := range says {
		_, all := serve(t, Config{
			Health: func() Health { return Health{Failing: message} },
			Report: func(Lists) Report {
				return Report{
					Failing: message, Status: proxy.Status{Error: message},
					Sources:  []Source{{Name: "api", Error: message}},
					Problems: []Problem{{Object: "source api: " + message, Detail: message, Advice: message}},
				}
			},
		})
		for _, path := range []string{"/statusz", "/readyz"} {
			body := ask(t, http.MethodGet, all+path).body
			assert.Contains(t, body, "(hidden)", "%s %s", path, message)
			assert.NotContains(t, body, secret, "%s %s", path, message)
		}
	}
}

// TestRedactor_leavesTheRest: addresses, names and advice stay readable.
func TestRedactor_leavesTheRest(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		`Get "https://admin:pw@192.0.2.1:6443/api?x=1": refused`: `Get "https://(hidden)@192.0.2.1:6443/api?x=1": refused`,
		`https://192.0.2.1:2379/a@b is fine`:                     `https://192.0.2.1:2379/a@b is fine`,
		`Service default/token: spec.ports[0]: 0 is no port`:     `Service default/token: spec.ports[0]: 0 is no port`,
		`basic rights are missing`:                               `basic rights are missing`,
		`the token is expired`:                                   `the token is expired`,
	} {
		assert.Equal(t, want, newRedactor().text(message))
	}
}
