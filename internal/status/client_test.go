package status

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/explain"
	"github.com/userspace-proxy/userspace-proxy/proxy"
)

func client(t *testing.T, address string) *Client {
	t.Helper()
	c, err := NewClient(address)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// TestClient_readsWhatTheServerSays: nothing is lost on the way.
func TestClient_readsWhatTheServerSays(t *testing.T) {
	t.Parallel()
	want := Report{
		Version: "v1", Node: Node{Name: "a"}, Redirect: "nftables",
		Sources:  []Source{{Name: "file", Error: "no answer"}},
		Problems: []Problem{{Object: "Service default/web", Detail: "<odd>"}},
		Status: proxy.Status{Ports: []proxy.PortStatus{{
			Name:    "default/web/TCP",
			Portals: []proxy.PortalStatus{{Addr: netip.MustParseAddrPort("10.96.0.1:80"), State: proxy.StateServing, Hits: 7}},
		}}},
		Connections: []proxy.ConnectionStatus{{
			Service: "default/web/TCP", Client: netip.MustParseAddrPort("192.0.2.1:1024"), State: proxy.ConnectionDialling, Age: 1500e6, Up: 9,
		}},
		Flows: []proxy.FlowStatus{{Service: "default/dns/UDP", Idle: 3e9, Up: proxy.Traffic{Datagrams: 1, Bytes: 2}}},
	}.whole()
	var asked Lists
	_, all := serve(t, Config{Report: func(l Lists) Report { asked = l; return want }})
	for _, address := range []string{all, all + "/", all[len("http://"):]} {
		got, err := client(t, address).Report(t.Context(), Lists{Connections: 3, Flows: 4})
		require.NoError(t, err)
		assert.Equal(t, Lists{Connections: 3, Flows: 4}, asked)
		got.Ports[0].Endpoints = nil // [] came back
		assert.Equal(t, want, got)
	}
	compact, indented := ask(t, http.MethodGet, all+"/statusz?compact").body, ask(t, http.MethodGet, all+"/statusz").body
	assert.NotContains(t, compact, "\n")
	assert.Contains(t, indented, "\n  \"")
	assert.JSONEq(t, indented, compact)
	q, err := explain.Parse("tcp", "10.96.0.1:80", "192.0.2.1")
	require.NoError(t, err)
	a, err := client(t, all).Explain(t.Context(), q)
	require.NoError(t, err)
	assert.Equal(t, "TCP 10.96.0.1:80 from 192.0.2.1", a.Summary)
	assert.Equal(t, http.StatusBadRequest, ask(t, http.MethodGet, all+"/explain?protocol=tcp").code)
}

// TestClient_saysWhatToDo where what is asked is no proxy.
func TestClient_saysWhatToDo(t *testing.T) {
	t.Parallel()
	answering := func(code int, contentType, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	closed := httptest.NewServer(nil)
	closed.Close()
	for _, tt := range []struct{ at, says string }{
		{closed.URL, "no proxy answers at AT: connect: connection refused\nis one running on this node? --address says where its --metrics-bind-address is"},
		{answering(404, "text/html", "nothing"), "what answers at AT has no /statusz: it is another program, or an older version of this one"},
		{answering(421, "text/plain", "\"x\" is no name of this server\n"), "AT answers 421 Misdirected Request to /statusz: \"x\" is no name of this server"},
		{answering(500, "text/plain", "\x1b[2Jgone\nmore"), "AT answers 500 Internal Server Error to /statusz: ?[2Jgone"},
		{answering(200, "text/html", "<html>"), "what answers at AT is no userspace-proxy: /statusz is not JSON there"},
		{answering(200, "application/json", "[]"), "what answers at AT is no userspace-proxy of this version: json: cannot unmarshal array into Go value of type status.Report"},
	} {
		_, err := client(t, tt.at).Report(context.Background(), Lists{})
		require.Error(t, err)
		assert.Equal(t, strings.ReplaceAll(tt.says, "AT", tt.at), err.Error())
	}
	for _, address := range []string{"", "https://127.0.0.1:1", "http://", "ftp://x", "http://x/statusz", "http://user:pw@x", "http://x?y", "%"} {
		_, err := NewClient(address)
		assert.Error(t, err, address)
	}
}
