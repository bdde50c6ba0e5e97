package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// threeSources is one proxy that follows three sources at once, which have
// Services of the same names. Each source's endpoints answer with its name.
type threeSources struct {
	bed     *nettest.Bed
	proxy   *proxy
	order   []string // of precedence
	origins map[string]origin
	tcp     map[string][]string // endpoints by source
}

// sourceNames are the sources in the order of the bits that say who has it.
func sourceNames() []string { return []string{"file", "apiserver", "etcd"} }

// TestThreeSourcesAtOnce: of a Service that several sources have, the first
// one's on the command line is served, whoever has it and whoever goes; and the
// endpoints are those of the source that the Service is from.
func TestThreeSourcesAtOnce(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft")
	bed := nettest.New(t)
	cp := newControlPlane(t, bed)
	tcp := make(map[string][]string)
	for i, name := range sourceNames() {
		addr := bed.Back.Addrs(service.IPv4)[i].String() + ":8080"
		bed.Back.ServeTCP(t, addr, nettest.Banner(name))
		tcp[name] = []string{addr}
	}
	for _, order := range [][]string{
		{"file", "apiserver", "etcd"},
		{"apiserver", "etcd", "file"},
		{"etcd", "file", "apiserver"},
		{"etcd", "apiserver", "file"},
	} {
		t.Run(strings.Join(order, ", "), func(t *testing.T) {
			file := writeFile(t, "# none yet\n")
			flags := map[string][]string{
				"file":      {"--file=" + file},
				"apiserver": {"--kubeconfig=" + cp.kubeconfig(t, asProxy())},
				// Not where the API server stores its own.
				"etcd": append(cp.etcd.flags(t, "proxy"), "--etcd-prefix=/elsewhere"),
			}
			var args []string
			for _, name := range order {
				args = append(args, flags[name]...)
			}
			p := launch(t, bed.Node, nil, file, append(args, "--min-sync-period=10ms")...)
			p.becomeHealthy(t)
			all := &threeSources{bed: bed, proxy: p, order: order, tcp: tcp, origins: map[string]origin{
				"file":      &files{proxy: p, objects: make(map[string]object)},
				"apiserver": cp,
				"etcd":      keys{etcd: cp.etcd, prefix: "/elsewhere", encode: asJSON},
			}}
			for i, s := range p.status(t).Sources {
				assert.Equal(t, order[i], s.Name)
			}
			all.everyChange(t)
			all.everyChangeOfSlices(t)
			p.stop(t)
		})
	}
}

// web is the Service as a source has it, with its endpoints or without any.
func (a *threeSources) web(source string, endpoints bool) object {
	o := object{name: "web", clusterIPs: []string{"10.96.0.10"}, ports: []port{{"stream", service.TCP, 80, 0}}}
	if endpoints {
		o.endpoints = map[string][]string{"stream": a.tcp[source]}
	}
	return o
}

// everyChange has the Service, with its endpoints, come and go in each source
// whoever else has it.
func (a *threeSources) everyChange(t *testing.T) {
	t.Helper()
	a.walk(t, func(t *testing.T, source string, comes bool) {
		if comes {
			a.origins[source].put(t, a.web(source, true))
		} else {
			a.origins[source].remove(t, "web")
		}
	}, func(t *testing.T, has map[string]bool) {
		want := a.first(has)
		a.expect(t, want)
		var shadowed []string // of those who have it too, one each
		eventually(t, func() bool {
			shadowed = a.proxy.problems(t)
			return len(shadowed) == max(0, len(has)-1)
		}, func() string { return fmt.Sprintf("problems of all but %s of %v; there are %v", want, has, shadowed) })
	})
}

// everyChangeOfSlices: every source has the Service, and its slices come and go.
// They count where the Service is from, if that source has any.
func (a *threeSources) everyChangeOfSlices(t *testing.T) {
	t.Helper()
	for _, source := range a.order {
		a.origins[source].put(t, a.web(source, false))
	}
	a.walk(t, func(t *testing.T, source string, comes bool) {
		a.origins[source].put(t, a.web(source, comes))
	}, func(t *testing.T, has map[string]bool) { a.expect(t, a.first(has)) })
	for _, source := range a.order {
		a.origins[source].remove(t, "web")
	}
	a.expect(t, "")
}

// first is the first source of those that have something; empty: none has.
func (a *threeSources) first(has map[string]bool) string {
	for _, source := range a.order {
		if has[source] {
			return source
		}
	}
	return ""
}

// expect waits until a source's endpoints answer; none: nobody's.
func (a *threeSources) expect(t *testing.T, source string) {
	t.Helper()
	if source == "" {
		requireNoAnswer(t, a.bed.Client, "10.96.0.10:80")
		return
	}
	requireAnswers(t, a.bed.Client, target{"tcp", "10.96.0.10:80"}, source)
}

// walk goes, from nobody and back, once through each change of one source that
// there is: from every combination of who has it, each of the three coming or
// going.
func (a *threeSources) walk(t *testing.T, change func(t *testing.T, source string, comes bool), check func(t *testing.T, has map[string]bool)) {
	t.Helper()
	at, gone := 0, make(map[[2]int]bool)
	for _, bit := range everyEdge(len(a.order)) {
		next := at ^ 1<<bit
		source := sourceNames()[bit]
		before := a.proxy.status(t).source(t, source)
		change(t, source, next > at)
		eventually(t, func() bool { return a.proxy.status(t).source(t, source) != before }, saying("%s to have changed", source))
		has := make(map[string]bool)
		for i, name := range sourceNames() {
			if next&(1<<i) != 0 {
				has[name] = true
			}
		}
		check(t, has)
		require.False(t, gone[[2]int{at, next}])
		gone[[2]int{at, next}] = true
		at = next
	}
	require.Zero(t, at)
	require.Len(t, gone, 3*8)
}

// everyEdge are the dimensions of a walk on the corners of a cube that goes once
// along every edge in each direction, and ends where it began (Hierholzer).
func everyEdge(dimensions int) []int {
	used := make([]int, 1<<dimensions) // by corner: how many of its edges
	type step struct{ corner, by int }
	var walk []int
	for stack := []step{{0, -1}}; len(stack) > 0; {
		top := stack[len(stack)-1]
		if d := used[top.corner]; d < dimensions {
			used[top.corner]++
			stack = append(stack, step{top.corner ^ 1<<d, d})
			continue
		}
		stack = stack[:len(stack)-1]
		if top.by >= 0 {
			walk = append(walk, top.by)
		}
	}
	slices.Reverse(walk)
	return walk
}

// TestSourceThatNeverDelivers: the others are served once the grace is over,
// and it is said which one is missing; when it comes at last, it counts.
func TestSourceThatNeverDelivers(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft")
	for _, test := range []struct {
		name string
		args func(t *testing.T, cp *controlPlane) []string
		port string
	}{
		{"apiserver", func(t *testing.T, cp *controlPlane) []string {
			return []string{"--kubeconfig=" + cp.kubeconfig(t, asProxy())}
		}, apiPort},
		{"etcd", func(t *testing.T, cp *controlPlane) []string { return cp.etcd.flags(t, "proxy") }, etcdPort},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			bed := nettest.New(t)
			cp := newControlPlane(t, bed)
			tcp := serveNamed(t, bed.Back, "tcp", 8080, "a", "b")
			late := object{name: "late", clusterIPs: []string{"10.96.0.20"}, ports: []port{{"stream", service.TCP, 80, 0}},
				endpoints: map[string][]string{"stream": tcp[2:]}}
			cp.put(t, late)
			mend := cut(t, bed, test.port, "drop")

			args := append(test.args(t, cp), "--startup-grace=1s")
			p := start(t, bed.Node, nil, manifest(changing(map[string][]string{"stream": tcp[:2]})), args...)
			requireAnswers(t, bed.Client, target{"tcp", "10.96.0.10:80"}, "a")
			st := p.status(t)
			assert.False(t, st.source(t, test.name).Delivered)
			assert.True(t, st.source(t, "file").Delivered)
			assert.Condition(t, func() bool {
				return slices.ContainsFunc(st.Problems, func(p problem) bool { return strings.Contains(p.Object, test.name) })
			}, "a problem that names it in %v", st.Problems)
			metrics, err := bed.Node.Get(t.Context(), metricsURL)
			require.NoError(t, err)
			assert.Contains(t, strings.Split(metrics, "\n"), fmt.Sprintf("userspace_proxy_source_delivered{source=%q} 0", test.name))

			mend()
			eventuallyWithin(t, recovery, func() bool { return p.status(t).source(t, test.name).Delivered }, saying("%s to deliver", test.name))
			requireAnswers(t, bed.Client, target{"tcp", "10.96.0.20:80"}, "b")
			requireAnswers(t, bed.Client, target{"tcp", "10.96.0.10:80"}, "a")
			p.stop(t)
		})
	}
}
