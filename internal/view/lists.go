package view

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/userspace-proxy/userspace-proxy/internal/layout"
	"github.com/userspace-proxy/userspace-proxy/internal/status"
)

// Connections are the TCP connections and UDP flows, a line each.
func Connections(r status.Report, style layout.Style) string {
	var t layout.Table
	t.Head(style, "SERVICE", "CLIENT", "ENDPOINT", "STATE", ">AGE", ">IDLE", ">UP", ">DOWN")
	for _, c := range r.Connections {
		endpoint := "-"
		if c.Endpoint.IsValid() {
			endpoint = c.Endpoint.String()
		}
		t.Row(layout.Text(c.Service), layout.Text(c.Client.String()), layout.Text(endpoint), layout.Text(c.State),
			layout.Number(span(c.Age)), layout.Number(span(c.Idle)), layout.Number(bytes(c.Up)), layout.Number(bytes(c.Down)))
	}
	for _, f := range r.Flows {
		t.Row(layout.Text(f.Service), layout.Text(f.Client.String()), layout.Text(f.Endpoint.String()), layout.Text("open"),
			layout.Number(span(f.Age)), layout.Number(span(f.Idle)), layout.Number(bytes(f.Up.Bytes)), layout.Number(bytes(f.Down.Bytes)))
	}
	var b strings.Builder
	if len(r.Connections)+len(r.Flows) > 0 {
		b.WriteString(t.String() + "\n")
	}
	fmt.Fprintf(&b, "%s and %s", count(len(r.Connections), "connection"), count(len(r.Flows), "flow"))
	if len(r.Connections) < r.ConnectionsOpen || len(r.Flows) < r.FlowsOpen {
		fmt.Fprintf(&b, " of %d and %d that are open", r.ConnectionsOpen, r.FlowsOpen)
	}
	return b.String() + "\n"
}

// Problems are all of them, each with what to do, after what keeps the proxy
// itself from being ready.
func Problems(r status.Report, style layout.Style) string {
	all := withSources(r)
	text := problems(all, len(all), style)
	if own := shortcomings(r, style); own != "" {
		text = style.Alarm("the proxy itself") + "\n" + own + text
	}
	if text == "" {
		return "no problems\n"
	}
	return text
}

// withSources are all problems, those of sources that fail now first. One that has
// never said what there is, or that has ended, has a problem of its own.
func withSources(r status.Report) []status.Problem {
	var all []status.Problem
	for _, s := range r.Sources {
		object := "Source " + s.Name
		told := slices.ContainsFunc(r.Problems, func(p status.Problem) bool { return p.Object == object })
		if s.Error != "" && s.Delivered && !told {
			all = append(all, status.Problem{
				Object: object, Reason: "SourceFails", Detail: s.Error,
				Advice: "what is known of it, " + ago(s.Checked) + ", stays in use meanwhile",
			})
		}
	}
	return append(all, r.Problems...)
}

// problems are the first of them.
func problems(all []status.Problem, most int, style layout.Style) string {
	var b strings.Builder
	for _, p := range all[:min(most, len(all))] {
		subject := p.Object
		if p.Field != "" {
			subject += ": " + p.Field
		}
		b.WriteString(style.Alarm(layout.Clean(subject)) + style.Faint(" "+layout.Clean(p.Reason)) + "\n")
		for _, line := range layout.Wrap(p.Detail, width-2) {
			b.WriteString("  " + line + "\n")
		}
		mark := "  -> "
		if p.Advice == "" {
			continue
		}
		for _, line := range layout.Wrap(p.Advice, width-len(mark)) {
			b.WriteString(mark + line + "\n")
			mark = strings.Repeat(" ", len(mark))
		}
	}
	return b.String()
}

// Lines is a text in a window of so many columns and rows: what does not fit is
// cut off, and how much that is stands in the last row.
func Lines(text string, columns, rows int) []string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, layout.Cut(strings.TrimSuffix(line, "\n"), columns))
	}
	if len(lines) > rows {
		left := len(lines) - rows + 1
		lines = append(lines[:max(0, rows-1)], layout.Cut("... "+strconv.Itoa(left)+" lines more: name a Service, or a namespace with -n", columns))
	}
	return lines
}
