package status

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// TestHealth is the table of docs/adr/0012-health.md.
func TestHealth(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		health                 Health
		livez, healthz, readyz int
		failing                string // of /readyz
	}{
		"well":              {Health{}, 200, 200, 200, ""},
		"starting":          {Health{Starting: "not yet"}, 200, 503, 503, "not yet"},
		"starting too long": {Health{Starting: "not yet", Overdue: true}, 503, 503, 503, "not yet"},
		"failing":           {Health{Failing: "no rules"}, 200, 200, 503, "no rules"},
		"failing too long":  {Health{Failing: "no rules", Overdue: true}, 503, 503, 503, "no rules"},
		"stuck":             {Health{Overdue: true}, 503, 503, 503, "what is to be served has not been done in time"},
		"used up":           {Health{UsedUp: true}, 200, 503, 503, "descriptors are used up: new clients wait"},
		"stale":             {Health{Stale: []string{"file"}}, 200, 200, 200, ""},
		"draining":          {Health{Draining: true}, 200, 503, 503, "the proxy is stopping"},
		"a node that goes":  {Health{Ineligible: "the Node is being deleted"}, 200, 503, 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, _ := serve(t, Config{Health: func() Health { return tt.health }})
			assert.Equal(t, tt.livez, ask(t, http.MethodGet, url+"/livez").code)
			assert.Equal(t, tt.healthz, ask(t, http.MethodGet, url+"/healthz").code)
			got := ask(t, http.MethodGet, url+"/readyz")
			assert.Equal(t, tt.readyz, got.code)
			var body struct {
				Healthy bool
				Failing string
			}
			require.NoError(t, json.Unmarshal([]byte(got.body), &body))
			assert.Equal(t, tt.failing, body.Failing)
			assert.Equal(t, tt.readyz == 200, body.Healthy)
		})
	}
}

// TestHealth_asKubeProxy: the answers are those of kube-proxy 1.37
// (pkg/proxy/healthcheck), with more at their end.
func TestHealth_asKubeProxy(t *testing.T) {
	t.Parallel()
	updated := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	now := updated.Add(time.Minute)
	h := Health{Updated: updated, Families: service.Families()}

	code, a := h.answer(h.notLive(), now)
	assert.Equal(t, 200, code)
	assertJSON(t, `{"lastUpdated":"2026-01-02T03:05:05Z","currentTime":"2026-01-02T03:05:05Z","healthy":true,`+
		`"status":{"IPv4":{"lastUpdated":"2026-01-02T03:04:05Z","healthy":true},"IPv6":{"lastUpdated":"2026-01-02T03:04:05Z","healthy":true}}}`, a)

	h.Overdue, h.Stale = true, []string{"file"}
	code, a = h.answer(h.notLive(), now)
	assert.Equal(t, 503, code)
	assertJSON(t, `{"lastUpdated":"2026-01-02T03:04:05Z","currentTime":"2026-01-02T03:05:05Z","healthy":false,`+
		`"status":{"IPv4":{"lastUpdated":"2026-01-02T03:04:05Z","healthy":false},"IPv6":{"lastUpdated":"2026-01-02T03:04:05Z","healthy":false}},`+
		`"failing":"what is to be served has not been done in time","staleSources":["file"]}`, a)

	_, a = Health{Families: service.Families()}.answer("", now)
	assert.Empty(t, a.Status, "kube-proxy has none before the first sync")

	url, _ := serve(t, Config{Health: func() Health { return Health{Draining: true} }})
	assert.Contains(t, ask(t, http.MethodGet, url+"/healthz").body, `"nodeEligible": false`)
	assert.NotContains(t, ask(t, http.MethodGet, url+"/livez").body, "nodeEligible")
	url, _ = serve(t, Config{Health: func() Health { return Health{Ineligible: "the Node is being deleted"} }})
	body := ask(t, http.MethodGet, url+"/healthz").body
	assert.Contains(t, body, `"nodeEligible": false`)
	assert.Contains(t, body, `"healthy": true`, "the proxy is well")
	assert.Contains(t, body, `"failing": "the Node is being deleted"`)
}

func assertJSON(t *testing.T, want string, v any) {
	t.Helper()
	got, err := json.Marshal(v)
	require.NoError(t, err)
	assert.Equal(t, want, string(got))
}
