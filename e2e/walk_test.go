package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// walk is a directory of Services and slices, a file each, which come, change
// and go one at a time, in any order; and so does an address of the node.
type walk struct {
	dir    string
	node   *nettest.Host
	moved  bool // the node has its other address
	random *rand.Rand
	tcp    []string // endpoints
	udp    []string
}

// walkName is one of few, so that what went comes back under its name.
func (w *walk) name() string { return fmt.Sprint("s", w.random.IntN(4)) }

// step is one event.
func (w *walk) step(t *testing.T) {
	t.Helper()
	if w.random.IntN(8) == 0 {
		w.moved = !w.moved
		act := map[bool]string{true: "add", false: "del"}[w.moved]
		w.node.Output(t, "ip", "address", act, "10.10.2.77/32", "dev", "lo")
		return
	}
	name := w.name()
	var text string
	file := "service-" + name
	if w.random.IntN(2) == 0 {
		file = "slice-" + name
		text = w.slice(name)
	} else {
		text = w.service(name)
	}
	path := filepath.Join(w.dir, file+".yaml")
	if w.random.IntN(4) == 0 {
		text = ""
	}
	if text == "" {
		if err := os.Remove(path); err != nil {
			require.ErrorIs(t, err, os.ErrNotExist)
		}
		return
	}
	require.NoError(t, os.WriteFile(path+"~", []byte(text), 0o644))
	require.NoError(t, os.Rename(path+"~", path))
}

// service has another form each time: its port is called otherwise or has
// another protocol or number, a node port comes or goes, affinity is turned on
// or off or lasts otherwise.
func (w *walk) service(name string) string {
	o := object{name: name, clusterIPs: []string{"10.96.0.10", "fd96::10"}}
	p := port{[]string{"p", "q"}[w.random.IntN(2)], w.protocol(), 80 + w.random.IntN(2) + 10*int(name[1]-'0'), 0}
	if w.random.IntN(3) == 0 {
		p.nodePort = 30080 + int(name[1]-'0')
	}
	o.ports = append(o.ports, p)
	if w.random.IntN(3) == 0 {
		o.ingress = []string{"10.96.0.20", "fd96::20"}
	}
	for _, one := range []string{"internalTrafficPolicy: Local\n", "externalTrafficPolicy: Local\n", "loadBalancerSourceRanges: [10.10.1.0/24, \"fd10:1::/64\"]\n"} {
		if w.random.IntN(3) == 0 {
			o.spec += one
		}
	}
	text := o.service()
	if w.random.IntN(2) == 0 && len(o.ingress) == 0 { // its status would be in between
		text += fmt.Sprintf("  sessionAffinity: ClientIP\n  sessionAffinityConfig: {clientIP: {timeoutSeconds: %d}}\n", 100+w.random.IntN(3))
	}
	return text
}

func (w *walk) protocol() service.Protocol {
	return []service.Protocol{service.TCP, service.UDP}[w.random.IntN(2)]
}

// slice has some endpoints, or none, for ports of both names and protocols.
func (w *walk) slice(name string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: %s-1\n"+
		"  labels: {kubernetes.io/service-name: %s}\naddressType: IPv4\nports:\n", name, name)
	for _, n := range []string{"p", "q"} {
		fmt.Fprintf(&b, "- {name: %s, protocol: %s, port: 8080}\n", n, w.protocol())
	}
	b.WriteString("endpoints:\n")
	some := w.random.IntN(3)
	for i := range some {
		host, _, _ := strings.Cut(w.tcp[2*i], ":")
		fmt.Fprintf(&b, "- {addresses: [%q], nodeName: node-%c, conditions: {ready: %t}}\n", host, 'a'+rune(w.random.IntN(2)), w.random.IntN(4) > 0)
	}
	if some == 0 {
		return strings.Replace(b.String(), "endpoints:\n", "endpoints: []\n", 1)
	}
	return b.String()
}

// state is all that is served and how, in a form that two processes have alike.
type state struct {
	Ports     []string
	Problems  []string
	Listeners int
	Rules     []string
}

// stateOf waits until a proxy has done what it was told, and describes it.
func stateOf(t *testing.T, p *proxy, lead way) state {
	t.Helper()
	var s statusz
	eventually(t, func() bool { s = p.statusz(t); return !s.Pending && s.Error == "" }, func() string { return "an end of work: " + s.Error })
	st := state{Listeners: s.Descriptors.Listeners}
	for _, port := range s.Ports {
		line := port.Name + " affinity " + port.Affinity
		for _, portal := range port.Portals {
			line += " at " + portal.Addr + " " + portal.State
			if portal.Outside != nil {
				line += " from outside " + portal.Outside.State
			}
		}
		for _, e := range port.Endpoints {
			if strings.HasPrefix(e.Why, "rests for") { // of what has happened, not of what there is
				e.Picked, e.Why = true, "ready"
			}
			line += fmt.Sprintf(" to %s %t %s", e.Addr, e.Picked, e.Why)
		}
		st.Ports = append(st.Ports, line)
	}
	for _, problem := range s.Problems {
		st.Problems = append(st.Problems, problem.Object+" "+problem.Reason+" "+problem.Detail)
	}
	if lead.redirect != "none" {
		st.Rules = lead.dump(t, p.node)
	}
	return st
}

// settledStateOf is stateOf when replaced listeners have had their last second.
func settledStateOf(t *testing.T, p *proxy, lead way) state {
	t.Helper()
	before := stateOf(t, p, lead)
	for {
		time.Sleep(1500 * time.Millisecond)
		now := stateOf(t, p, lead)
		if assert.ObjectsAreEqual(before, now) {
			return now
		}
		before = now
	}
}

// requireState waits until a proxy's state is a given one.
func requireState(t *testing.T, p *proxy, lead way, want state) {
	t.Helper()
	var got state
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if got = stateOf(t, p, lead); assert.ObjectsAreEqual(want, got) {
			return
		}
	}
	require.Equal(t, want, got)
}

// startIn is way.start for a directory.
func (w way) startIn(t *testing.T, node *nettest.Host, dir string, flags ...string) *proxy {
	t.Helper()
	p := launch(t, node, w.env, dir, append([]string{"--file", dir, "--redirect=" + w.redirect}, flags...)...)
	eventually(t, func() bool { return p.hasEnded() || p.healthy() }, saying("a healthy proxy"))
	require.False(t, p.hasEnded(), "the proxy ended at its start")
	return p
}

// TestCase43_AnyOrderOfEvents: Services, slices and an address of the node come,
// change and go in any order, one at a time or several at once; what is served then, and the rules, are
// what a fresh start makes of the same files. Repeat one with WALK_SEED=number.
func TestCase43_AnyOrderOfEvents(t *testing.T) {
	t.Parallel()
	seed := seedOf(t, "WALK_SEED")
	eachWay(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		w := &walk{dir: t.TempDir(), node: bed.Node, random: rand.New(rand.NewPCG(seed, 43))}
		w.tcp = serveNamed(t, bed.Back, "tcp", 8080, "a", "b")
		w.udp = serveNamed(t, bed.Back, "udp", 8080, "a", "b")
		flags := append(lead.detection(), "--drain-timeout=0s", "--nodeport-addresses=10.10.2.0/24")
		walked := lead.startIn(t, bed.Node, w.dir, flags...)
		for range 3 {
			for range 15 {
				w.step(t)
			}
			walked.takesNoMore(t)
			want := settledStateOf(t, walked, lead)
			walked.stop(t)
			walked = lead.startIn(t, bed.Node, w.dir, flags...)
			walked.takesNoMore(t)
			requireState(t, walked, lead, want)
		}
		walked.stop(t)
	})
}

// takesNoMore returns when the source has read all that is there: it tells by a
// Service that comes after all else, and then goes.
func (p *proxy) takesNoMore(t *testing.T) {
	t.Helper()
	path := filepath.Join(p.file, "zz-last.yaml")
	has := func() bool {
		s := p.statusz(t)
		return !s.Pending && slices.ContainsFunc(s.Problems, func(p struct{ Object, Reason, Detail string }) bool { return p.Object == "Service default/zz-last" })
	}
	require.NoError(t, os.WriteFile(path, []byte("apiVersion: v1\nkind: Service\nmetadata: {name: zz-last, namespace: default}\nspec: {ports: [{port: 1}]}\n"), 0o644))
	eventually(t, has, saying("the last Service to be read"))
	require.NoError(t, os.Remove(path))
	eventually(t, func() bool { return !has() }, saying("the last Service to be gone"))
}

// seedOf is the seed that the environment has, or another each time; it is
// printed.
func seedOf(t *testing.T, variable string) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv(variable); text != "" {
		_, err := fmt.Sscan(text, &seed)
		require.NoError(t, err, variable)
	}
	t.Logf("%s=%d", variable, seed)
	return seed
}

// TestReconcileMendsWhatWasBrokenByHand: listening sockets closed, rules deleted,
// listening addresses removed: all is as it was before long, without a change to
// what is to be served.
func TestReconcileMendsWhatWasBrokenByHand(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		nettest.Need(t, "ss")
		tcp := serveNamed(t, bed.Back, "tcp", 8080, "a")
		udp := serveNamed(t, bed.Back, "udp", 8080, "a")
		p := lead.start(t, bed.Node, manifest(changing(map[string][]string{"stream": tcp, "datagram": udp})), "--sync-period=1s", "--min-sync-period=10ms")
		requireAnswersEverywhere(t, bed, "a")
		before := stateOf(t, p, lead)

		breaks := map[string]func(){
			"listening sockets": func() {
				for _, port := range p.statusz(t).Ports {
					for _, portal := range port.Portals {
						if strings.HasSuffix(port.Name, "/TCP") {
							bed.Node.Output(t, "ss", "-K", "-Hltn", "src", portal.Listener)
						}
					}
				}
			},
		}
		if lead.redirect != "none" {
			breaks["listening addresses"] = func() { removeListeningAddresses(t, bed.Node) }
			breaks["rules"] = func() { lead.wipe(t, bed.Node) }
		}
		for _, what := range slices.Sorted(maps.Keys(breaks)) {
			t.Log("broken by hand:", what)
			breaks[what]()
			requireAnswersEverywhere(t, bed, "a")
			requireState(t, p, lead, before)
		}
		assert.Contains(t, p.output.String(), "was closed by somebody else")
		p.stop(t)
	})
}

// TestCase31_TheWatchMendsAlone: what somebody removes is back without a change of
// anything, long before all is looked at again.
func TestCase31_TheWatchMendsAlone(t *testing.T) {
	t.Parallel()
	eachRules(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		tcp, udp := serveNamed(t, bed.Back, "tcp", 8080, "a"), serveNamed(t, bed.Back, "udp", 8080, "a")
		p := lead.start(t, bed.Node, manifest(changing(map[string][]string{"stream": tcp, "datagram": udp})), "--sync-period=1h")
		for said, damage := range map[string]func(){
			"rules were changed by somebody else": func() { lead.wipe(t, bed.Node) },
			"the listening address ":              func() { removeListeningAddresses(t, bed.Node) },
		} {
			damage()
			requireAnswersEverywhere(t, bed, "a")
			p.says(t, said)
			assert.Empty(t, p.problems(t), said)
		}
		p.stop(t)
	})
}

func removeListeningAddresses(t *testing.T, node *nettest.Host) {
	t.Helper()
	node.Output(t, "ip", "addr", "del", "169.254.77.1/32", "dev", "lo")
	node.Output(t, "ip", "-6", "addr", "del", "fd77::1/128", "dev", "lo")
}

// wipe deletes our rules of the way's kind, as a firewall's reload does.
func (w way) wipe(t *testing.T, node *nettest.Host) {
	t.Helper()
	if w.redirect == "nftables" {
		node.Output(t, "nft", "delete table ip userspace-proxy; delete table ip6 userspace-proxy")
		return
	}
	for _, command := range []string{w.name, regexp.MustCompile("^ip").ReplaceAllString(w.name, "ip6")} {
		node.Output(t, command, "-t", "nat", "-F")
		node.Output(t, command, "-F")
	}
}
