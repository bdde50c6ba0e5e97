package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

// TestTrace: the portal that a client has called is named, whatever rules have
// made of the destination, and a port that is not asked for is not told of.
func TestTrace(t *testing.T) {
	t.Parallel()
	eachRules(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		p := lead.start(t, bed.Node, manifest(changing(map[string][]string{
			"stream": serveNamed(t, bed.Back, "tcp", 8080, "a"), "datagram": serveNamed(t, bed.Back, "udp", 8080, "a"),
		})), "--trace-connections=service=default/web:stream")
		for _, to := range changingTargets() {
			requireAnswers(t, bed.Client, to, "a")
		}
		for _, to := range changingTargets() {
			want := fmt.Sprintf(`msg="accepted at %s, which rules lead to the listener `, regexp.QuoteMeta(to.address))
			if to.network == "tcp" {
				eventually(t, func() bool { return regexp.MustCompile(want).MatchString(p.output.String()) }, saying("%s", want))
			}
		}
		require.Contains(t, p.output.String(), `service="default/web:stream/TCP"`)
		for line := range strings.Lines(p.output.String()) {
			if strings.Contains(line, " flow=") {
				assert.Fail(t, "a flow that nobody asked for", line)
			}
		}
	})
}
