package explain

import (
	"fmt"
	"strings"

	"github.com/userspace-proxy/userspace-proxy/internal/layout"
)

// Text is the answer for people, no wider than a terminal of 80 columns as far
// as names let it.
func (a Answer) Text(style layout.Style) string {
	const width, indent = 80, 14
	var b strings.Builder
	paint := style.Strong
	if a.Verdict != Served {
		paint = style.Notice
	}
	for _, line := range layout.Wrap(a.Summary, width) {
		b.WriteString(paint(line) + "\n")
	}
	if !a.Live {
		b.WriteString(style.Faint("as the files say, before anybody has connected") + "\n")
	}
	b.WriteByte('\n')
	for i, s := range a.Steps {
		name := fmt.Sprintf("%d. %-*s", i+1, indent-3, s.Name)
		for _, line := range layout.Wrap(s.Text, width-indent) {
			b.WriteString(name + line + "\n")
			name = strings.Repeat(" ", indent)
		}
		b.WriteString(endpointLines(s.Endpoints, indent, style))
	}
	if len(a.Advice) > 0 {
		fmt.Fprintf(&b, "\n%s\n", style.Strong("What would change it:"))
	}
	for _, advice := range a.Advice {
		mark := "- "
		for _, line := range layout.Wrap(advice, width-2) {
			b.WriteString(mark + line + "\n")
			mark = "  "
		}
	}
	return b.String()
}

// endpointLines are endpoints below each other.
func endpointLines(all []Endpoint, indent int, style layout.Style) string {
	var t layout.Table
	for _, e := range all {
		paint := style.Faint
		if e.Turn == 1 {
			paint = style.Strong
		}
		name := e.Addr.String()
		if e.Pod != "" {
			name += " " + e.Pod
		}
		t.Row(layout.Painted(name, paint), layout.Text(e.Why))
	}
	var b strings.Builder
	for line := range strings.Lines(t.String()) {
		b.WriteString(strings.Repeat(" ", indent) + line)
	}
	return b.String()
}
