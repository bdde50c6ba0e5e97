package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// semantic is a row of docs/semantics.md: what a field means, the table of
// Resolve that has its every case, and what traffic must meet.
type semantic struct {
	field, rule string
	resolved    string // tests whose names begin so
	steps       func(p *policied) []stage
}

// stage is a state of things, and what must become of traffic then.
type stage struct {
	manifest string
	want     meets
}

// nobody is what meets neither of the endpoints: it is not for the proxy.
const nobody = "nobody"

// oneOf is what meets one endpoint and always that.
const oneOf = "one"

// semantics are the rows, in the order of the document.
func semantics() []semantic {
	everyone := func(what string) meets { return external(what, what, what) }
	const local = "externalTrafficPolicy: Local\ninternalTrafficPolicy: Local"
	// about is a manifest in which something is said of the endpoint "here".
	about := func(p *policied, what string, more ...map[service.Family]netip.Addr) string {
		before := p.about
		p.about = make(map[netip.Addr]string)
		for a, s := range before {
			p.about[a] = s
		}
		for _, a := range p.here {
			p.about[a] = nodeHere + "\n" + what
		}
		defer func() { p.about = before }()
		return p.with("", append(more, p.here)...)
	}
	edit := func(old, by string) func(p *policied) []stage {
		return func(p *policied) []stage {
			return []stage{{strings.ReplaceAll(p.with("", p.here), old, by), everyone(nettest.Refused)}}
		}
	}
	return []semantic{
		{"`spec.clusterIPs`, `ipFamilies`, `ports[]`", "each family's address is a portal; TCP and UDP of one number are two ports", "clusterIPs",
			func(p *policied) []stage { return []stage{{p.with("", p.here, p.there), everyone(both)}} }},
		{"`spec.type`", "an ExternalName has no listener; one that turns into or out of it loses or gains it", "type",
			func(p *policied) []stage {
				name := regexp.MustCompile(`(?m)^ {2}type: .*$`).ReplaceAllString(p.with("externalName: example.com", p.here), "  type: ExternalName")
				name = regexp.MustCompile(`(?m)^ {2}(clusterIPs?|ipFamil|externalIPs).*\n`).ReplaceAllString(name, "")
				name = regexp.MustCompile(`, nodePort: \d+`).ReplaceAllString(name, "")
				return []stage{{name, everyone(nobody)}, {p.with("", p.here), everyone("here")}}
			}},
		{"`ports[].nodePort`, `externalIPs`, `status.loadBalancer.ingress[]`", "are portals beside the cluster's, on this node", "nodePort",
			func(p *policied) []stage { return []stage{{p.with("", p.there), everyone("there")}} }},
		{"`sessionAffinity: ClientIP`", "a client stays with its endpoint", "sessionAffinity",
			func(p *policied) []stage {
				return []stage{{p.with("sessionAffinity: ClientIP", p.here, p.there), everyone(oneOf)}}
			}},
		{"`loadBalancerSourceRanges`", "load balancer addresses only; anyone else is dropped", "loadBalancerSourceRanges",
			func(p *policied) []stage {
				m := everyone("here")
				m[service.LoadBalancer] = map[string]string{"client": nettest.Dropped, "pod": "here", "node": nettest.Dropped}
				return []stage{{p.with(`loadBalancerSourceRanges: [10.10.3.0/24, " fd10:3::/64"]`, p.here), m}}
			}},
		{"`externalTrafficPolicy: Local`", "what comes from outside stays on this node, or is dropped; what comes from inside need not", "externalTrafficPolicy",
			func(p *policied) []stage {
				const outer = "externalTrafficPolicy: Local"
				return []stage{
					{p.with(outer, p.here, p.there), external(both, "here", both)}, {p.with(outer, p.there), external("there", nettest.Dropped, "there")},
				}
			}},
		{"`internalTrafficPolicy: Local`", "what comes to cluster addresses stays on this node, or is refused", "internalTrafficPolicy",
			func(p *policied) []stage {
				const inner = "internalTrafficPolicy: Local"
				return []stage{
					{p.with(inner, p.here, p.there), external("here", both, both)}, {p.with(inner, p.there), external(nettest.Refused, "there", "there")},
				}
			}},
		{"slice `conditions`", "ready ones first; where none is ready, those that serve while they terminate, for all and for local ones apart", "conditions",
			func(p *policied) []stage {
				const leaves = "conditions: {ready: false, serving: true, terminating: true}"
				return []stage{
					{about(p, "conditions: {ready: false, serving: true, terminating: false}", p.there), everyone("there")},
					{about(p, leaves, p.there), everyone("there")},
					{about(p, leaves), everyone("here")},
					{strings.Replace(about(p, leaves, p.there), "  externalIPs", "  externalTrafficPolicy: Local\n  internalTrafficPolicy: Local\n  externalIPs", 1), external("here", "here", "there")},
				}
			}},
		{"slice `hints`", "count where every ready endpoint has them and one names this node", "hints",
			func(p *policied) []stage {
				return []stage{{strings.ReplaceAll(strings.ReplaceAll(p.with("", p.here, p.there), "nodeName: node-a", "hints: {forNodes: [{name: node-a}]}"),
					"nodeName: node-b", "hints: {forNodes: [{name: node-b}]}"), everyone("here")}}
			}},
		{"several slices of a Service", "their union", "several_slices",
			func(p *policied) []stage {
				second := strings.SplitN(strings.ReplaceAll(p.with("", p.there), "name: web-", "name: more-"), "---\n", 2)[1]
				return []stage{{p.with("", p.here) + "---\n" + second, everyone(both)}}
			}},
		{"`v1.Endpoints`", "taken for a Service that no slice speaks of", "v1_Endpoints",
			func(p *policied) []stage {
				return []stage{{p.with("") + fmt.Sprintf("---\napiVersion: v1\nkind: Endpoints\nmetadata: {name: web, namespace: default}\nsubsets:\n"+
					"- addresses: [{ip: %q}, {ip: %q}]\n  ports: [{name: stream, port: 8080}, {name: datagram, port: 8080, protocol: UDP}]\n",
					p.here[service.IPv4], p.here[service.IPv6]), everyone("here")}}
			}},
		{"slice `endpoints[].addresses`", "loopback and link-local ones, and others at which nobody's backend can be, are refused", "addresses",
			func(p *policied) []stage {
				v4, v6 := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("fe80::7")
				return []stage{{p.with("", p.here, map[service.Family]netip.Addr{service.IPv4: v4, service.IPv6: v6}), everyone("here")}}
			}},
		{"target port names", "strict: a slice's port must have the Service port's name", "slice_ports",
			func(p *policied) []stage {
				renamed := strings.NewReplacer(`ports: [{name: "stream"`, `ports: [{name: "other"`, `ports: [{name: "datagram"`, `ports: [{name: "another"`)
				return []stage{{renamed.Replace(p.with("", p.here)), everyone(nettest.Refused)}}
			}},
		{"label `service.kubernetes.io/service-proxy-name`", "not ours; added it tears down, removed it sets up", "label_service_proxy_name",
			func(p *policied) []stage {
				labelled := strings.Replace(p.with("", p.here), "metadata: {name: web,", "metadata: {labels: {service.kubernetes.io/service-proxy-name: x}, name: web,", 1)
				return []stage{{labelled, everyone(nobody)}, {p.with("", p.here), everyone("here")}}
			}},
		{"label `service.kubernetes.io/headless` on a slice", "ignored", "label_headless",
			edit("labels: {kubernetes.io", `labels: {service.kubernetes.io/headless: "", kubernetes.io`)},
		{"two Services, one address and port", "the older, then the first by name has it", "claims",
			func(p *policied) []stage {
				thief := p.object
				thief.name, thief.about = "zz-thief", nil
				thief.endpoints = map[string][]string{}
				return []stage{{p.with("", p.here) + "---\n" + manifest(thief), everyone("here")}}
			}},
		{"cross family", "a family without endpoints is served by the other's", "cross_family",
			func(p *policied) []stage {
				v4 := map[service.Family]netip.Addr{service.IPv4: p.here[service.IPv4], service.IPv6: p.here[service.IPv4]}
				return []stage{{p.with("", v4), everyone("here")}}
			}},
		{"no usable endpoint", "refused at once, from everywhere; answers again the moment one comes", "conditions",
			func(p *policied) []stage {
				return []stage{{p.with(""), everyone(nettest.Refused)}, {p.with("", p.here), everyone("here")}, {p.with(local), everyone(nettest.Refused)}}
			}},
		{"endpoint removed", "nothing new comes to it", "endpointRemoved",
			func(p *policied) []stage {
				return []stage{{p.with("", p.here, p.there), everyone(both)}, {p.with("", p.there), everyone("there")}}
			}},
	}
}

// TestSemantics runs every row by every way, and writes what it saw into
// docs/semantics.md, with SEMANTICS=update, or compares it. A row that fails, or
// has no test of its resolution, is red and fails the run.
func TestSemantics(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := make(map[string]string) // by field, way and family: what differs
	t.Run("rows", func(t *testing.T) {
		eachWay(t, func(t *testing.T, bed *nettest.Bed, lead way) {
			p := servePolicied(t, bed, lead)
			run := lead.start(t, bed.Node, p.with(""), lead.detection()...)
			for _, row := range semantics() {
				steps := row.steps(p)
				for _, f := range service.Families() {
					mu.Lock()
					seen[row.field+lead.name+string(f)] = ""
					mu.Unlock()
				}
				for n, stage := range steps {
					run.write(t, stage.manifest)
					for _, f := range service.Families() {
						why := p.settles(t, bed, lead, f, stage.want)
						assert.Empty(t, why, "%s, stage %d", row.field, n)
						mu.Lock()
						seen[row.field+lead.name+string(f)] += why
						mu.Unlock()
					}
				}
			}
			run.stop(t)
		})
	})
	if t.Failed() && os.Getenv("SEMANTICS") != "update" {
		return
	}
	text := semanticsDocument(t, ways(t), seen)
	file := filepath.Join("..", "docs", "semantics.md")
	if os.Getenv("SEMANTICS") == "update" {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	written, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(written), text, "SEMANTICS=update scripts/e2e.sh -run 'TestSemantics$' writes it anew")
	assert.NotContains(t, text, "| 🔴")
}

// settles waits until traffic in a family meets what it should, twice in a row;
// else it says what it meets. (Where nobody served an address, connection tracking
// remembers it for two minutes, and a connection that gets the same port by chance
// goes astray.)
func (p *policied) settles(t *testing.T, bed *nettest.Bed, lead way, f service.Family, want meets) (why string) {
	t.Helper()
	good := 0
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if why = p.differs(t, bed, lead, want, f); why != "" {
			good = 0
			time.Sleep(20 * time.Millisecond)
			continue
		}
		good++
		if good == 2 {
			return ""
		}
	}
	return why
}

// semanticsDocument is docs/semantics.md.
func semanticsDocument(t *testing.T, ways []way, seen map[string]string) string {
	t.Helper()
	tests := testNames(t)
	var b strings.Builder
	b.WriteString("# What a Service means, and what shows it\n\n" +
		"Written by a run of `TestSemantics` in [e2e](../e2e/semantics_test.go), which sends TCP and UDP from a\n" +
		"neighbour, from a pod and from the node itself to a portal of each kind. 🟢 is what was\n" +
		"seen to be so, 🔴 what was not. What a field means in every case is in the tables of\n" +
		"`config.Resolve`: *resolved* has the name of its tests, and how many functions they are.\n\n")
	b.WriteString("Not traffic to a portal, and tested beside this: `healthCheckNodePort`\n" +
		"([internal/healthport](../internal/healthport)), an endpoint that does not answer the dial\n" +
		"([proxy](../proxy/cases_linux_test.go)), rolling endpoints ([e2e](../e2e/rolling_test.go)), senders that\n" +
		"never stop ([e2e](../e2e/policies_test.go)).\n\n")
	b.WriteString("| field | rule | resolved |")
	line := "|---|---|---|"
	for _, w := range ways {
		for _, f := range service.Families() {
			fmt.Fprintf(&b, " %s %s |", w.name, f)
			line += "---|"
		}
	}
	b.WriteString("\n" + line + "\n")
	for _, row := range semantics() {
		n := 0
		for _, test := range tests {
			if strings.HasPrefix(test, "TestSemantics_") && strings.Contains(test, row.resolved) {
				n++
			}
		}
		resolved := "🔴"
		if n > 0 {
			resolved = fmt.Sprintf("`TestSemantics_*%s` %d", row.resolved, n)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |", row.field, row.rule, resolved)
		for _, w := range ways {
			for _, f := range service.Families() {
				mark := "🔴"
				if why, ran := seen[row.field+w.name+string(f)]; ran && why == "" {
					mark = "🟢"
				}
				fmt.Fprintf(&b, " %s |", mark)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// testNames are the tests of meaning that there are outside of this package.
func testNames(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, dir := range []string{"config", "loadbalancer", "proxy", "nftables", "iptables"} {
		files, err := filepath.Glob(filepath.Join("..", dir, "*_test.go"))
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, m := range regexp.MustCompile(`(?m)^func (TestSemantics_\w+)\(`).FindAllStringSubmatch(string(text), -1) {
				names = append(names, m[1])
			}
		}
	}
	slices.Sort(names)
	return names
}
