package view

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/userspace-proxy/userspace-proxy/internal/layout"
	"github.com/userspace-proxy/userspace-proxy/internal/status"
	"github.com/userspace-proxy/userspace-proxy/proxy"
)

// width is that of paragraphs.
const width = 80

// Overview is how the proxy is, its sources, every service port with its
// portals and endpoints, and the first problems.
func Overview(r status.Report, style layout.Style) string {
	var b strings.Builder
	b.WriteString(heading(r, style))
	if len(r.Sources) > 0 {
		b.WriteString("\n" + sources(r.Sources, style))
	}
	if len(r.Ports) > 0 {
		b.WriteString("\n" + ports(r.Ports, style))
	}
	if all := withSources(r); len(all) > 0 {
		const most = 5
		b.WriteString("\n" + style.Strong("PROBLEMS") + "\n" + problems(all, most, style))
		if more := len(all) - most; more > 0 {
			fmt.Fprintf(&b, "and %d more: userspace-proxy status problems\n", more)
		}
	}
	return b.String()
}

// heading is the proxy itself.
func heading(r status.Report, style layout.Style) string {
	state, paint := "ready", style.Strong
	if r.Failing != "" {
		state, paint = "NOT READY", style.Alarm
	}
	version, _, _ := strings.Cut(r.Version, " (") // what it was built with would not fit into 80 columns
	var b strings.Builder
	fmt.Fprintf(&b, "%s: userspace-proxy on %s, up %s, rules: %s, %s\n", paint(state), layout.Clean(r.Node.Name),
		strings.TrimSuffix(ago(r.Uptime), " ago"), layout.Clean(r.Redirect), layout.Clean(version))
	b.WriteString(shortcomings(r, style))
	summary, _, _ := strings.Cut(r.Summary, "; ") // problems come below
	fmt.Fprintf(&b, "%s\n%s, %s; %s\n", layout.Clean(summary),
		count(r.ConnectionsOpen, "connection"), count(r.FlowsOpen, "flow"), count(len(withSources(r)), "problem"))
	return b.String()
}

// shortcomings are what the proxy cannot do, and no object is to blame for.
func shortcomings(r status.Report, style layout.Style) string {
	var b strings.Builder
	for _, why := range []string{r.Failing, r.Error, r.Hits.Error} {
		if why == "" {
			continue
		}
		for _, line := range layout.Wrap(why, width-2) {
			b.WriteString("  " + style.Alarm(line) + "\n")
		}
	}
	return b.String()
}

func sources(all []status.Source, style layout.Style) string {
	var t layout.Table
	t.Head(style, "SOURCE", ">SERVICES", ">SLICES", "CHANGED", "CHECKED", "STATE")
	for _, s := range all {
		state := layout.Text("in step")
		switch {
		case s.Error != "":
			state = layout.Painted(s.Error, style.Alarm)
		case !s.Delivered:
			state = layout.Painted("has not said yet what there is", style.Notice)
		case s.Problems > 0:
			state = layout.Painted("in step, but for "+count(s.Problems, "problem"), style.Notice)
		}
		t.Row(layout.Text(s.Name), layout.Number(strconv.Itoa(s.Services)), layout.Number(strconv.Itoa(s.Endpoints)),
			layout.Text(ago(s.Age)), layout.Text(ago(s.Checked)), state)
	}
	return t.String()
}

// ports has a line for each service port, its portals ("at") and its endpoints
// ("to").
func ports(all []proxy.PortStatus, style layout.Style) string {
	var t layout.Table
	t.Head(style, "SERVICE", "STATE", ">OPEN", "WHY")
	for _, p := range all {
		open := 0
		for _, e := range p.Endpoints {
			open += e.Connections + e.Flows
		}
		t.Row(layout.Painted(p.Name+" "+string(p.Family), style.Strong), portState(p, style),
			layout.Number(strconv.Itoa(open)), layout.Painted(about(p), style.Faint))
		for _, at := range p.Portals {
			t.Row(portal(at, style)...)
		}
		for _, e := range p.Endpoints {
			t.Row(endpoint(e, style)...)
		}
	}
	return t.String()
}

// portState sums up the states of the portals.
func portState(p proxy.PortStatus, style layout.Style) layout.Cell {
	if len(p.Portals) == 0 {
		return layout.Painted("no portal", style.Notice)
	}
	state := p.Portals[0].State
	for _, at := range p.Portals {
		if at.State != state {
			return layout.Painted("in part", style.Notice)
		}
	}
	return painted(state, style)
}

func painted(state string, style layout.Style) layout.Cell {
	switch state {
	case proxy.StateServing:
		return layout.Text(state)
	case proxy.StateRefusing:
		return layout.Painted(state, style.Notice)
	}
	return layout.Painted(state, style.Alarm)
}

func about(p proxy.PortStatus) string {
	says := []string{"from " + p.Source}
	if p.Affinity != "" {
		says = append(says, fmt.Sprintf("affinity %s, %s", p.Affinity, count(p.Clients, "client")))
	}
	if p.Most > 0 {
		says = append(says, fmt.Sprintf("at most %s", count(p.Most, "connection")))
	}
	if len(p.Endpoints) == 0 {
		says = append(says, "no endpoint")
	}
	return strings.Join(says, "; ")
}

func portal(at proxy.PortalStatus, style layout.Style) []layout.Cell {
	why := layout.Painted("listener "+at.Listener, style.Faint)
	switch {
	case at.State == proxy.StateUnserved:
		why = layout.Painted(at.Why, style.Alarm)
	case at.Listener == at.Addr.String():
		why = layout.Text("")
	case at.Hits > 0:
		why.Text += fmt.Sprintf("; %d came by its rule", at.Hits)
	}
	return []layout.Cell{layout.Text(fmt.Sprintf("  at %s %s", at.Kind, at.Addr)), painted(at.State, style), layout.Number(""), why}
}

func endpoint(e proxy.EndpointStatus, style layout.Style) []layout.Cell {
	name := strings.TrimSuffix(fmt.Sprintf("  to %s %s", e.Addr, e.Pod), " ")
	state, why := layout.Text("picked"), e.Why
	if e.Picked {
		why = ""
	} else {
		state = layout.Painted("not picked", style.Notice)
	}
	return []layout.Cell{layout.Text(name), state, layout.Number(strconv.Itoa(e.Connections + e.Flows)), layout.Text(why)}
}
