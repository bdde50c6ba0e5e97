//go:build linux && !portable

package iptables

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// inKernel is a tracer over what the world's kernel has.
func (w *world) inKernel(t testing.TB) *tracer {
	t.Helper()
	tr := &tracer{t: t, rules: make(map[service.Family]map[place][][]string)}
	for f, addr := range w.config.Listen {
		tr.local = append(append(tr.local, addr), w.Node.Addrs(f)...)
		for _, table := range w.config.tables() {
			l, err := parse(w.Node.Output(t, w.config.Kind.Command(f)+"-save", "-t", table))
			require.NoError(t, err)
			for _, rules := range l.rules {
				for _, r := range rules {
					tr.add(f, table, r)
				}
			}
		}
	}
	return tr
}

// dump is what the kernel of the world's node has, as iptables-save prints it.
// What differs between equal states is taken out: when it was printed, and
// the counts.
func (w *world) dump(t testing.TB) string {
	t.Helper()
	var s strings.Builder
	for _, f := range service.Families() {
		for _, table := range w.config.tables() {
			for line := range strings.Lines(w.Node.Output(t, w.config.Kind.Command(f)+"-save", "-t", table)) {
				if strings.HasPrefix(line, ":") {
					line, _, _ = strings.Cut(line, " [")
					line += "\n"
				}
				if !strings.HasPrefix(line, "#") {
					s.WriteString(string(f) + " " + line)
				}
			}
		}
	}
	return s.String()
}
