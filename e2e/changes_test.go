package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// portals of the Service whose endpoints come and go, by network.
type target struct{ network, address string }

func changing(endpoints map[string][]string) object {
	return object{
		name:       "web",
		clusterIPs: []string{"10.96.0.10", "fd96::10"},
		ports:      []port{{"stream", service.TCP, 80, 30080}, {"datagram", service.UDP, 80, 30080}},
		endpoints:  endpoints,
	}
}

func changingTargets() []target {
	var all []target
	for _, network := range []string{"tcp", "udp"} {
		for _, address := range []string{"10.96.0.10:80", "[fd96::10]:80", "10.10.2.1:30080", "[fd10:2::1]:30080"} {
			all = append(all, target{network, address})
		}
	}
	return all
}

// requireAnswers waits until the servers that answer from a host are these,
// and no others.
func requireAnswers(t *testing.T, from *nettest.Host, to target, want ...string) {
	t.Helper()
	var got []string
	var err error
	eventually(t, func() bool {
		got, err = answers(t, from, to.network, to.address, 2*len(want))
		slices.Sort(got)
		got = slices.Compact(got)
		return err == nil && slices.Equal(want, got)
	}, func() string {
		return fmt.Sprintf("%v to answer at %v from %s; last: %v, %v", want, to, from.Name, got, err)
	})
}

func TestEndpointsComeAndGo(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		tcp := serveNamed(t, bed.Back, "tcp", 8080, "a", "b", "c") // two addresses each: IPv4, IPv6
		udp := serveNamed(t, bed.Back, "udp", 8080, "a", "b", "c")
		with := func(i, j int) string {
			return manifest(changing(map[string][]string{"stream": tcp[2*i : 2*j], "datagram": udp[2*i : 2*j]}))
		}
		senders := []*nettest.Host{bed.Client, bed.Pod, bed.Node}
		expect := func(want ...string) {
			t.Helper()
			for _, to := range changingTargets() {
				for _, from := range senders {
					requireAnswers(t, from, to, want...)
				}
			}
		}

		p := lead.start(t, bed.Node, with(0, 1))
		expect("a")
		p.write(t, with(0, 2)) // one added
		expect("a", "b")
		p.write(t, with(1, 3)) // one removed, one added
		expect("b", "c")
		p.write(t, with(2, 3)) // one removed
		expect("c")

		p.write(t, with(0, 0)) // all removed
		for _, to := range changingTargets() {
			for _, from := range senders {
				requireRefusal(t, from, to)
			}
		}

		p.write(t, with(0, 2)) // back
		expect("a", "b")
		p.stop(t)
	})
}

func TestConnectionOutlivesItsEndpointAndItsService(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		tcp := serveNamed(t, bed.Back, "tcp", 8080, "a", "b")
		p := lead.start(t, bed.Node, manifest(changing(map[string][]string{"stream": tcp[:2]})))
		to := target{"tcp", "10.96.0.10:80"}
		requireAnswers(t, bed.Client, to, "a")

		c, err := bed.Client.Dial(t.Context(), "tcp", to.address)
		require.NoError(t, err)
		defer func() { assert.NoError(t, c.Close()) }()
		require.NoError(t, c.SetDeadline(time.Now().Add(3*patience)))
		expect := func(want string) {
			t.Helper()
			got := make([]byte, len(want))
			_, err = io.ReadFull(c, got)
			require.NoError(t, err)
			assert.Equal(t, want, string(got))
		}
		expect("a\n")

		p.write(t, manifest(changing(map[string][]string{"stream": tcp[2:]})))
		requireAnswers(t, bed.Client, to, "b")
		_, err = io.WriteString(c, "still a?")
		require.NoError(t, err)
		expect("still a?")

		p.write(t, manifest(object{name: "other", clusterIPs: []string{"10.96.0.20"}, ports: changing(nil).ports,
			endpoints: map[string][]string{"stream": tcp}}))
		requireAnswers(t, bed.Client, target{"tcp", "10.96.0.20:80"}, "a", "b")
		_, err = io.WriteString(c, "and now?")
		require.NoError(t, err)
		expect("and now?")
	})
}

func TestServicesComeAndGo(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		tcp := serveNamed(t, bed.Back, "tcp", 8080, "a", "b")
		first := object{name: "first", clusterIPs: []string{"10.96.0.10", "fd96::10"},
			ports: []port{{"stream", service.TCP, 80, 0}}, endpoints: map[string][]string{"stream": tcp[:2]}}
		second := object{name: "second", clusterIPs: []string{"10.96.0.20", "fd96::20"},
			ports: []port{{"stream", service.TCP, 80, 0}}, endpoints: map[string][]string{"stream": tcp[2:]}}
		moved := second
		moved.ports = []port{{"stream", service.TCP, 8080, 30081}}

		p := lead.start(t, bed.Node, manifest(first))
		each := func(test func(from *nettest.Host)) {
			for _, from := range []*nettest.Host{bed.Client, bed.Pod, bed.Node} {
				test(from)
			}
		}
		each(func(from *nettest.Host) {
			requireAnswers(t, from, target{"tcp", "10.96.0.10:80"}, "a")
			requireAnswers(t, from, target{"tcp", "[fd96::10]:80"}, "a")
		})

		p.write(t, manifest(first, second)) // added
		each(func(from *nettest.Host) {
			requireAnswers(t, from, target{"tcp", "10.96.0.20:80"}, "b")
			requireAnswers(t, from, target{"tcp", "[fd96::20]:80"}, "b")
			requireAnswers(t, from, target{"tcp", "10.96.0.10:80"}, "a")
		})

		p.write(t, manifest(first, moved)) // changed: another port, and a node port
		each(func(from *nettest.Host) {
			requireAnswers(t, from, target{"tcp", "10.96.0.20:8080"}, "b")
			requireAnswers(t, from, target{"tcp", "[fd10:2::1]:30081"}, "b")
			requireNoAnswer(t, from, "10.96.0.20:80")
			requireNoAnswer(t, from, "[fd96::20]:80")
		})

		p.write(t, manifest(moved)) // removed
		each(func(from *nettest.Host) {
			requireNoAnswer(t, from, "10.96.0.10:80")
			requireNoAnswer(t, from, "[fd96::10]:80")
			requireAnswers(t, from, target{"tcp", "[fd96::20]:8080"}, "b")
		})

		p.write(t, "# none any more\n") // an empty file would be taken for one that is being written
		each(func(from *nettest.Host) { requireNoAnswer(t, from, "10.96.0.20:8080") })
		p.stop(t)
	})
}

// requireNoAnswer waits until a TCP address that nobody serves any more takes
// no connections: they are refused or lead nowhere.
func requireNoAnswer(t *testing.T, from *nettest.Host, address string) {
	t.Helper()
	eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		c, err := from.Dial(ctx, "tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	}, saying("%s to answer %s no more", address, from.Name))
}

// requireRefusal waits until an address refuses a host at once. Until the
// rules say so a listener without endpoints takes connections and resets them.
func requireRefusal(t *testing.T, from *nettest.Host, to target) {
	t.Helper()
	var err error
	eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = from.Refusal(ctx, to.network, to.address)
		return errors.Is(err, syscall.ECONNREFUSED)
	}, func() string { return fmt.Sprintf("%v to refuse %s; last: %v", to, from.Name, err) })
}

// TestAffinity: a client keeps its endpoint, by whatever portal it comes,
// until the endpoint goes.
func TestAffinity(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		tcp := serveNamed(t, bed.Back, "tcp", 8080, "a", "b", "c")
		o := changing(map[string][]string{"stream": tcp})
		o.affinity = true
		p := lead.start(t, bed.Node, manifest(o))
		var first []string
		eventually(t, func() bool {
			var err error
			first, err = answers(t, bed.Client, "tcp", "10.96.0.10:80", 1)
			return err == nil
		}, saying("an answer"))
		for _, address := range []string{"10.96.0.10:80", "10.10.2.1:30080"} {
			got, err := answers(t, bed.Client, "tcp", address, 6)
			require.NoError(t, err)
			assert.Equal(t, first, slices.Compact(got), "by %s", address)
		}

		i := 2 * slices.Index([]string{"a", "b", "c"}, first[0])
		o.endpoints = map[string][]string{"stream": slices.Concat(tcp[:i], tcp[i+2:])}
		p.write(t, manifest(o))
		eventually(t, func() bool {
			got, err := answers(t, bed.Client, "tcp", "10.96.0.10:80", 6)
			return err == nil && got[0] != first[0] && len(slices.Compact(got)) == 1
		}, saying("another endpoint than %s, and one alone", first[0]))
	})
}
