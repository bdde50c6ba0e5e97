package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/userspace-proxy/userspace-proxy/config"
	"github.com/userspace-proxy/userspace-proxy/internal/status"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// plan is what a run would serve. The names in its JSON are those of /statusz.
type plan struct {
	Redirect string           `json:"redirect"`
	Ports    []planPort       `json:"ports"`
	Problems []status.Problem `json:"problems"`

	counts    counts
	redirects []service.Redirect
	options   *options
	listen    addresses
}

type planPort struct {
	Name      string         `json:"name"`
	Family    service.Family `json:"family"`
	Source    string         `json:"source"`
	Affinity  string         `json:"affinity,omitempty"`
	Portals   []planPortal   `json:"portals"`
	Endpoints []planEndpoint `json:"endpoints"`
}

type planPortal struct {
	Kind     service.PortalKind `json:"kind"`
	Addr     netip.AddrPort     `json:"addr"`
	Listener netip.AddrPort     `json:"listener"`
}

type planEndpoint struct {
	Addr   netip.AddrPort `json:"addr"`
	Node   string         `json:"node,omitempty"`
	Pod    string         `json:"pod,omitempty"`
	Picked bool           `json:"picked"`
	Why    string         `json:"why"`
}

// newPlan is pure. Listeners get the ports of the range in the order of the
// service ports, for each family and protocol from the first on, as a start
// from nothing gives them.
func newPlan(o *options, r redirection, resolved config.Resolution) *plan {
	p := &plan{
		Redirect: r.way, Ports: []planPort{}, Problems: status.ProblemsOf(resolved.Problems),
		counts: countOf(resolved.Ports, func(portalAt) bool { return true }), options: o, listen: r.listen,
	}
	type place struct {
		service.Family
		service.Protocol
	}
	used := map[place]uint16{}
	for _, port := range resolved.Ports {
		pp := planPort{
			Name: port.PortName.String(), Family: port.Family, Source: port.Source,
			Portals: []planPortal{}, Endpoints: endpointsOf(port),
		}
		if port.Affinity > 0 {
			pp.Affinity = port.Affinity.String()
		}
		at := place{port.Family, port.Protocol}
		listener := netip.AddrPortFrom(r.listen[port.Family], o.meant.ports.First+used[at])
		if r.way != redirectNone && len(port.Portals) > 0 {
			used[at]++
		}
		for _, portal := range port.Portals {
			if r.way == redirectNone {
				listener = portal.Addr
			} else {
				p.redirects = append(p.redirects, service.Redirect{
					Portal: portal.Addr, Protocol: port.Protocol, Action: service.ToListener, Listener: listener, Service: port.PortName,
				})
			}
			pp.Portals = append(pp.Portals, planPortal{portal.Kind, portal.Addr, listener})
		}
		p.Ports = append(p.Ports, pp)
	}
	return p
}

// listeners are where portals lead to.
func (p *plan) listeners() map[hitPortal]string {
	all := map[hitPortal]string{}
	for _, port := range p.Ports {
		protocol := service.Protocol(port.Name[strings.LastIndexByte(port.Name, '/')+1:])
		for _, portal := range port.Portals {
			all[hitPortal{portal.Addr, protocol}] = portal.Listener.String()
		}
	}
	return all
}

func endpointsOf(port service.Port) []planEndpoint {
	all := []planEndpoint{}
	for _, e := range port.Endpoints {
		all = append(all, planEndpoint{e.Addr, e.Node, e.Pod, true, "ready"})
	}
	for _, e := range port.Unused {
		all = append(all, planEndpoint{e.Addr, e.Node, e.Pod, false, e.Why})
	}
	slices.SortStableFunc(all, func(a, b planEndpoint) int { return a.Addr.Compare(b.Addr) })
	return all
}

func (p *plan) writeJSON(to io.Writer) error {
	e := json.NewEncoder(to)
	e.SetIndent("", "  ")
	return e.Encode(p) // the reader has gone
}

var errNoRules = errors.New("--output: there are no rules with --redirect=none")

func (p *plan) writeRules(name string, to io.Writer) error {
	kind, ok := p.options.rulesOf(name)
	if p.Redirect == redirectNone || !ok {
		return usage(errNoRules)
	}
	_, err := io.WriteString(to, kind.render(p.listen, p.redirects))
	return err // the reader has gone
}

// writeText writes a table with a line for each portal and endpoint of a port,
// beside each other, and the problems below.
func (p *plan) writeText(to io.Writer) error {
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	if len(p.Ports) > 0 {
		fmt.Fprint(w, "PORT\tFAMILY\tPORTAL\tLISTENER\tENDPOINT\n")
	}
	for _, port := range p.Ports {
		port.writeRows(w)
	}
	if err := w.Flush(); err != nil {
		return err // a strings.Builder takes everything
	}
	for line := range strings.Lines(table.String()) {
		if _, err := fmt.Fprintln(to, strings.TrimRight(line, " \n")); err != nil {
			return err // the reader has gone
		}
	}
	return p.writeProblems(to)
}

func (port planPort) writeRows(w io.Writer) {
	rows := max(1, len(port.Portals), len(port.Endpoints))
	if port.Affinity != "" {
		rows = max(rows, 2)
	}
	for i := range rows {
		row := make([]string, 5)
		if i == 0 {
			row[0], row[1] = port.Name, string(port.Family)
		}
		if i == 1 && port.Affinity != "" {
			row[0] = "  ClientIP affinity, " + port.Affinity
		}
		switch {
		case i < len(port.Portals):
			portal := port.Portals[i]
			row[2], row[3] = string(portal.Kind)+" "+portal.Addr.String(), portal.Listener.String()
		case i == 0:
			row[2] = "none: not served"
		}
		switch {
		case i < len(port.Endpoints):
			e := port.Endpoints[i]
			row[4] = e.Addr.String()
			if !e.Picked {
				row[4] += " not picked: " + e.Why
			}
		case i == 0 && len(port.Portals) > 0:
			row[4] = "none: refused at once"
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
}

func (p *plan) writeProblems(to io.Writer) error {
	var b strings.Builder
	if len(p.Ports) > 0 {
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "%s; %s\n", p.counts, count(len(p.Problems), "problem"))
	for _, problem := range p.Problems {
		fmt.Fprintf(&b, "\n%s\n", service.Problem(problem))
	}
	_, err := io.WriteString(to, b.String())
	return err // the reader has gone
}
