package e2e

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// TestIperf3: whole bulk transfers in both directions, of streams and of
// datagrams, whose server has one number for both protocols and controls even
// a measurement of datagrams by a stream.
func TestIperf3(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "iperf3")
	eachWay(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		v4, v6 := bed.Back.Addr(service.IPv4).String(), bed.Back.Addr(service.IPv6).String()
		o := object{name: "iperf", clusterIPs: []string{"10.96.0.20", "fd96::20"},
			ports: []port{{"stream", service.TCP, 5201, 0}, {"datagram", service.UDP, 5201, 0}}}
		both := []string{v4 + ":5201", "[" + v6 + "]:5201"}
		o.endpoints = map[string][]string{"stream": both, "datagram": both}
		for _, a := range []string{v4, v6} {
			daemon(t, bed.Back, "iperf3", "--server", "--bind", a, "--port", "5201")
		}
		requirePort(t, bed.Back, both[0])
		requirePort(t, bed.Back, both[1])
		lead.start(t, bed.Node, manifest(o))
		requirePort(t, bed.Client, "10.96.0.20:5201")
		requirePort(t, bed.Client, "[fd96::20]:5201")

		for _, from := range []*nettest.Host{bed.Client, bed.Pod, bed.Node} {
			for _, a := range o.clusterIPs {
				for _, way := range [][]string{
					{"--parallel=3", "--bytes=64M"},
					{"--reverse", "--bytes=64M"},
					{"--udp", "--length=1200", "--bitrate=20M", "--bytes=1M"},
					{"--udp", "--length=1200", "--bitrate=20M", "--bytes=1M", "--reverse"},
				} {
					what := fmt.Sprintf("%s to %s %v", from.Name, a, way)
					sum := iperf3(t, from, a, way...)
					if way[0] == "--udp" {
						assert.Positive(t, sum.Packets-sum.Lost, "%s: datagrams that arrived, of %d", what, sum.Packets)
						continue
					}
					// The client stops the measurement when it has sent all: what is
					// in buffers by then is not counted.
					assert.Greater(t, sum.Bytes, 1<<20, what)
				}
			}
		}
	})
}

// received is what iperf3 has counted at the receiver.
type received struct {
	Bytes   int
	Packets int
	Lost    int `json:"lost_packets"`
}

// iperf3 measures once. The server takes one client after the other, and may
// not be done with the one before.
func iperf3(t *testing.T, from *nettest.Host, server string, args ...string) received {
	t.Helper()
	argv := append([]string{"iperf3", "--client", server, "--port", "5201", "--json"}, args...)
	var answer struct {
		Error string
		End   struct {
			Stream   received `json:"sum_received"`
			Datagram received `json:"sum"`
		}
	}
	eventually(t, func() bool {
		r := runToEnd(t, from, nil, argv...)
		answer.Error = ""
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &answer), "%s%s", r.stdout, r.stderr)
		return answer.Error == ""
	}, func() string { return fmt.Sprintf("%v: %s", argv, answer.Error) })
	if answer.End.Datagram.Packets > 0 {
		return answer.End.Datagram
	}
	return answer.End.Stream
}
