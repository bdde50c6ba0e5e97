package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

// TestPrometheusScrapes: a real Prometheus, with the alerts of
// deploy/observability, sees what passed the proxy.
func TestPrometheusScrapes(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "prometheus", "nft")
	bed := nettest.New(t)
	p := start(t, bed.Node, nil, manifest(changing(map[string][]string{
		"stream":   serveNamed(t, bed.Back, "tcp", 8080, "a"),
		"datagram": serveNamed(t, bed.Back, "udp", 8080, "a"),
	})), "--redirect=nftables")
	requireAnswers(t, bed.Client, target{"tcp", "10.96.0.10:80"}, "a")
	requireAnswers(t, bed.Client, target{"udp", "10.96.0.10:80"}, "a")

	alerts, err := filepath.Abs("../deploy/observability/alerts.yaml")
	require.NoError(t, err)
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yaml")
	require.NoError(t, os.WriteFile(config, []byte(fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
- {job_name: userspace-proxy, static_configs: [{targets: ["127.0.0.1:10249"]}]}
`, alerts)), 0o600))
	daemon(t, bed.Node, "prometheus", "--config.file="+config, "--storage.tsdb.path="+dir+"/data",
		"--web.listen-address=127.0.0.1:9090")

	for _, query := range []string{
		`up{job="userspace-proxy"}`,
		`userspace_proxy_tcp_connections_opened_total{namespace="default",service="web",port="stream"} >= bool 2`,
		`userspace_proxy_udp_flows_opened_total{namespace="default",service="web",port="datagram"} >= bool 2`,
		`userspace_proxy_endpoints{service="web",port="stream",state="ready"} == bool 2`, // one in each family
		`kubeproxy_sync_proxy_rules_service_changes_total`,
		`userspace_proxy_source_failing{source="file"} == bool 0`,
		`count(userspace_proxy_build_info)`,
	} {
		got := ""
		eventually(t, func() bool {
			got = askPrometheus(bed.Node, query)
			return got == "1"
		}, func() string { return fmt.Sprintf("%s to be 1; last: %s", query, got) })
	}
	body, err := bed.Node.Get(t.Context(), "http://127.0.0.1:9090/api/v1/rules")
	require.NoError(t, err)
	assert.Contains(t, body, "UserspaceProxySourceStale")
	assert.NotContains(t, body, `"health":"err"`)

	// A source that fails is seen, and the alert waits for its time.
	require.NoError(t, os.Remove(p.file))
	eventually(t, func() bool {
		return askPrometheus(bed.Node, `count(ALERTS{alertname="UserspaceProxySourceStale",source="file",alertstate="pending"})`) == "1"
	}, saying("the alert of a stale source"))
}

// askPrometheus is the value of a query that has one, as text, or why there is none.
func askPrometheus(host *nettest.Host, query string) string {
	body, err := host.Get(context.Background(), "http://127.0.0.1:9090/api/v1/query?query="+url.QueryEscape(query))
	if err != nil {
		return err.Error()
	}
	var answer struct {
		Data struct{ Result []struct{ Value [2]any } }
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || len(answer.Data.Result) != 1 {
		return body
	}
	return fmt.Sprint(answer.Data.Result[0].Value[1])
}
