package redirects_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/redirects"
	"github.com/userspace-proxy/userspace-proxy/service"
)

type ports struct{ first, last uint16 }

func (p ports) Contains(port uint16) bool { return p.first <= port && port <= p.last }
func (p ports) String() string            { return fmt.Sprintf("%d to %d", p.first, p.last) }

func place() redirects.Place {
	return redirects.Place{
		Listen: map[service.Family]netip.Addr{service.IPv4: netip.MustParseAddr("169.254.77.1")},
		Ports:  ports{10000, 10099},
	}
}

func redirect(name, portal string, action service.Action, listener string) service.Redirect {
	r := service.Redirect{Portal: netip.MustParseAddrPort(portal), Protocol: service.TCP, Action: action}
	r.Service.Name = name
	if listener != "" {
		r.Listener = netip.MustParseAddrPort(listener)
	}
	return r
}

func TestSettleInWhateverOrder(t *testing.T) {
	t.Parallel()
	a := redirect("a", "10.96.0.2:80", service.ToListener, "169.254.77.1:10000")
	b := redirect("b", "10.96.0.2:80", service.ToListener, "169.254.77.1:10001")
	udp := a
	udp.Protocol = service.UDP
	mapped := redirect("c", "[::ffff:10.96.0.1]:80", service.Refuse, "192.0.2.1:1") // whose listener nobody needs
	want := []service.Redirect{redirect("c", "10.96.0.1:80", service.Refuse, ""), a, udp}
	all := []service.Redirect{b, a, udp, a, mapped, redirect("six", "[fd96::1]:80", service.Drop, "")}
	for range all {
		all = append(all[1:], all[0])
		for range 2 {
			slices.Reverse(all)
			got, err := redirects.Settle(all, place())
			require.ErrorContains(t, err, `redirect of "/b/" at "10.96.0.2:80" left out: another redirect has the portal`)
			assert.Equal(t, want, got)
		}
	}
}

func TestSettleLeavesOutWhatNoRuleCanExpress(t *testing.T) {
	t.Parallel()
	for why, r := range map[string]service.Redirect{
		"not an address that a portal can have": redirect("web", "0.0.0.0:80", service.Drop, ""),
		"no port":                               redirect("web", "10.96.0.1:0", service.Drop, ""),
		`no action "Teleport"`:                  redirect("web", "10.96.0.1:80", "Teleport", ""),
		`listener "169.254.77.1:80" is not on "169.254.77.1" with a port of 10000 to 10099, so that nothing guards it`: redirect("web", "10.96.0.1:80", service.ToListener, "169.254.77.1:80"),
		`listener "192.0.2.1:10000" is not on`: redirect("web", "10.96.0.1:80", service.ToListener, "192.0.2.1:10000"),
	} {
		got, err := redirects.Settle([]service.Redirect{r, redirect("good", "10.96.0.9:80", service.Drop, "")}, place())
		require.ErrorContains(t, err, why)
		assert.Len(t, got, 1, "the others are whole")
	}
}
