package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// TestCase46_ListenersAnswerOnlyTranslatedTraffic: whoever talks to the
// proxy's own ports, not to a Service, is refused.
func TestCase46_ListenersAnswerOnlyTranslatedTraffic(t *testing.T) {
	t.Parallel()
	eachRules(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		p := lead.start(t, bed.Node, manifest(changing(map[string][]string{
			"stream": serveNamed(t, bed.Back, "tcp", 8080, "a"), "datagram": serveNamed(t, bed.Back, "udp", 8080, "a"),
		})))
		requireAnswersEverywhere(t, bed, "a")
		listeners := p.listeners(t)
		require.Len(t, listeners, 4, "of each protocol and family")

		// The client is told how to get there, as a neighbour that means harm would.
		bed.Client.Output(t, "ip", "route", "add", "169.254.77.1", "via", "10.10.1.1")
		bed.Client.Output(t, "ip", "route", "add", "fd77::1", "via", "fd10:1::1")
		for _, l := range listeners {
			for _, from := range []*nettest.Host{bed.Client, bed.Pod, bed.Node} {
				from.AssertRefused(t, l.network, l.address)
			}
		}
		requireAnswersEverywhere(t, bed, "a")
	})
}

// listeners are the proxy's own, that rules lead to.
func (p *proxy) listeners(t *testing.T) (all []target) {
	t.Helper()
	body, err := p.node.Get(t.Context(), statusURL)
	require.NoError(t, err)
	var status struct {
		Ports []struct {
			Name    string
			Portals []struct{ Listener string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(body), &status), "%s", body)
	for _, port := range status.Ports {
		network := strings.ToLower(port.Name[strings.LastIndex(port.Name, "/")+1:])
		for _, portal := range port.Portals {
			if l := (target{network, portal.Listener}); l.address != "" && !slices.Contains(all, l) {
				all = append(all, l)
			}
		}
	}
	return all
}

// TestCase33_DaemonsOfTheNodeKeepTheirPorts: Services want an external address
// that is the node's, and a node port, on which daemons listen. The daemons go
// on, the Services are told of, and served when the daemons have gone.
func TestCase33_DaemonsOfTheNodeKeepTheirPorts(t *testing.T) {
	t.Parallel()
	eachRules(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		var daemons []*nettest.Server
		var taken []target
		for _, f := range service.Families() {
			for _, number := range []uint16{2222, 30081} {
				at := netip.AddrPortFrom(bed.Node.Addr(f), number).String()
				daemons = append(daemons, bed.Node.ServeTCP(t, at, nettest.Banner("daemon")), bed.Node.ServeUDP(t, at, nettest.Named("daemon")))
				taken = append(taken, target{"tcp", at}, target{"udp", at})
			}
		}
		endpoints := map[string][]string{
			"stream": serveNamed(t, bed.Back, "tcp", 8080, "a"), "datagram": serveNamed(t, bed.Back, "udp", 8080, "a"),
		}
		external := changing(endpoints)
		external.name, external.externalIPs = "external", []string{"10.10.2.1", "fd10:2::1"}
		external.ports = []port{{"stream", service.TCP, 2222, 0}, {"datagram", service.UDP, 2222, 0}}
		nodePort := changing(endpoints)
		nodePort.name, nodePort.clusterIPs = "node-port", []string{"10.96.0.20", "fd96::20"}
		nodePort.ports[0].nodePort, nodePort.ports[1].nodePort = 30081, 30081

		p := lead.start(t, bed.Node, manifest(external, nodePort))
		others := []target{{"tcp", "10.96.0.10:2222"}, {"udp", "[fd96::10]:2222"}, {"udp", "10.96.0.20:80"}, {"tcp", "[fd96::20]:80"}}
		senders := []*nettest.Host{bed.Client, bed.Pod, bed.Node}
		for _, from := range senders {
			for _, to := range taken {
				requireAnswers(t, from, to, "daemon")
			}
			for _, to := range others {
				requireAnswers(t, from, to, "a")
			}
		}
		problems := p.problems(t)
		assert.Len(t, problems, len(taken))
		for _, problem := range problems {
			assert.Contains(t, problem, "PortTaken")
			assert.Contains(t, problem, "another program on this node listens there")
		}

		for _, d := range daemons {
			d.Close()
		}
		for _, from := range senders {
			for _, to := range taken {
				requireAnswers(t, from, to, "a")
			}
		}
		eventually(t, func() bool { return len(p.problems(t)) == 0 }, saying("no problem"))
		p.stop(t)
	})
}

// TestCase33_NobodyTakesAPortOfAService: a node port, with endpoints and
// without, and the ports of listeners, are the proxy's, whatever options a
// stranger on the node sets.
func TestCase33_NobodyTakesAPortOfAService(t *testing.T) {
	t.Parallel()
	eachRules(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		endpoints := map[string][]string{
			"stream": serveNamed(t, bed.Back, "tcp", 8080, "a"), "datagram": serveNamed(t, bed.Back, "udp", 8080, "a"),
		}
		p := lead.start(t, bed.Node, manifest(changing(endpoints)))
		requireAnswersEverywhere(t, bed, "a")
		ports := append(p.listeners(t), target{"tcp", "10.10.2.1:30080"}, target{"udp", "10.10.2.1:30080"},
			target{"tcp", "[fd10:2::1]:30080"}, target{"udp", "[fd10:2::1]:30080"})
		require.Len(t, ports, 8)
		requireNobodyTakes(t, bed.Node, ports)

		p.write(t, manifest(changing(nil)))
		for _, to := range changingTargets() {
			eventually(t, func() bool { return isRefused(t, bed.Client, to) }, saying("%v to refuse", to))
		}
		requireNobodyTakes(t, bed.Node, ports)

		p.write(t, manifest(changing(endpoints)))
		requireAnswersEverywhere(t, bed, "a")
		requireNobodyTakes(t, bed.Node, ports)
		p.stop(t)
	})
}

func requireNobodyTakes(t *testing.T, node *nettest.Host, ports []target) {
	t.Helper()
	for _, to := range ports {
		for _, options := range [][]int{nil, {unix.SO_REUSEADDR}, {unix.SO_REUSEPORT}, {unix.SO_REUSEADDR, unix.SO_REUSEPORT}} {
			c := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
				return c.Control(func(fd uintptr) {
					for _, o := range options {
						_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, o, 1)
					}
				})
			}}
			var err error
			node.Do(t, func() {
				var taken interface{ Close() error }
				if to.network == "tcp" {
					taken, err = c.Listen(context.Background(), to.network, to.address)
				} else {
					taken, err = c.ListenPacket(context.Background(), to.network, to.address)
				}
				if err == nil {
					_ = taken.Close()
				}
			})
			require.ErrorIs(t, err, syscall.EADDRINUSE, "%v with options %v", to, options)
		}
	}
}

func isRefused(t *testing.T, from *nettest.Host, to target) bool {
	t.Helper()
	_, err := answers(t, from, to.network, to.address, 1)
	return errors.Is(err, syscall.ECONNREFUSED)
}
