package e2e

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/stretchr/testify/assert"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// TestMatrix sends traffic by every way there is: each kind of redirect, family,
// sender, protocol and kind of portal. A cell of the table that it prints is
// the endpoints that answered four requests in turn, or what went wrong.
func TestMatrix(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft", "ip")
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "redirect\tfamily\tfrom")
	for _, k := range matrixPortals() {
		for _, p := range []service.Protocol{service.TCP, service.UDP} {
			fmt.Fprintf(w, "\t%s %s", p, k.kind)
		}
	}
	fmt.Fprintln(w)
	for _, k := range ways(t) {
		t.Run(k.name, func(t *testing.T) { matrix(t, w, k) })
	}
	assert.NoError(t, w.Flush())
	fmt.Printf("\n%s\n", &table)
}

// matrixPortal is one address of the Service in each family and the port there.
type matrixPortal struct {
	kind  service.PortalKind
	addrs map[service.Family]string
	port  int
}

func matrixPortals() []matrixPortal {
	return []matrixPortal{
		{service.ClusterIP, map[service.Family]string{service.IPv4: "10.96.0.10", service.IPv6: "fd96::10"}, 80},
		{service.ExternalIP, map[service.Family]string{service.IPv4: "203.0.113.7", service.IPv6: "2001:db8::7"}, 80},
		{service.NodePort, map[service.Family]string{service.IPv4: "10.10.2.1", service.IPv6: "fd10:2::1"}, 30080},
	}
}

// matrix fills the rows of one kind of redirect.
func matrix(t *testing.T, w *tabwriter.Writer, lead way) {
	bed := nettest.New(t)
	o := object{
		name: "web",
		// One number for both protocols: CASES knows proxies that lost one.
		ports: []port{{"stream", service.TCP, 80, 30080}, {"datagram", service.UDP, 80, 30080}},
		endpoints: map[string][]string{
			"stream":   serveNamed(t, bed.Back, "tcp", 8080, "a", "b"),
			"datagram": serveNamed(t, bed.Back, "udp", 8080, "a", "b"),
		},
	}
	for _, f := range service.Families() {
		o.clusterIPs = append(o.clusterIPs, matrixPortals()[0].addrs[f])
		o.externalIPs = append(o.externalIPs, matrixPortals()[1].addrs[f])
	}
	if lead.redirect == "none" {
		// Without rules a Service has the addresses that the node has.
		for _, a := range slices.Concat(o.clusterIPs, o.externalIPs) {
			bed.Node.Output(t, "ip", "addr", "add", a, "dev", "lo")
		}
	}
	lead.start(t, bed.Node, manifest(o))

	for _, f := range service.Families() {
		for _, from := range []*nettest.Host{bed.Client, bed.Pod, bed.Node} {
			fmt.Fprintf(w, "%s\t%s\t%s", lead.name, f, from.Name)
			for _, k := range matrixPortals() {
				for _, network := range []string{"tcp", "udp"} {
					address := net.JoinHostPort(k.addrs[f], fmt.Sprint(k.port))
					got, err := answers(t, from, network, address, 4)
					if err != nil {
						fmt.Fprintf(w, "\tFAILED: %v", err)
					} else {
						fmt.Fprintf(w, "\t%s", strings.Join(got, " "))
					}
					assert.NoError(t, err, "%s %s from %s to %s", lead.name, network, from.Name, address)
					slices.Sort(got)
					assert.Equal(t, []string{"a", "a", "b", "b"}, got, "%s %s from %s to %s", lead.name, network, from.Name, address)
				}
			}
			fmt.Fprintln(w)
		}
	}
}

// serveNamed starts a server for each name at the host's addresses in turn,
// in both families, and returns where they are.
func serveNamed(t *testing.T, host *nettest.Host, network string, number int, names ...string) []string {
	t.Helper()
	var all []string
	for i, name := range names {
		for _, f := range service.Families() {
			address := net.JoinHostPort(host.Addrs(f)[i].String(), fmt.Sprint(number))
			if network == "udp" {
				host.ServeUDP(t, address, nettest.Named(name))
			} else {
				host.ServeTCP(t, address, nettest.Banner(name))
			}
			all = append(all, address)
		}
	}
	return all
}

// answers are the names of the servers that answer n requests in turn.
func answers(t *testing.T, from *nettest.Host, network, address string, n int) ([]string, error) {
	t.Helper()
	var names []string
	for range n {
		name, err := answer(t.Context(), from, target{network, address})
		if err != nil {
			return names, err
		}
		names = append(names, name)
	}
	return names, nil
}

// answer is the name of the server that answers one request.
func answer(ctx context.Context, from *nettest.Host, to target) (string, error) {
	if to.network == "udp" {
		name, err := from.ExchangeUDP(ctx, to.address, "who?")
		name, _, _ = strings.Cut(name, " ")
		return name, err
	}
	return from.ReadBanner(ctx, to.address)
}
