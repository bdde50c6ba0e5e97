package main

import (
	"cmp"
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
	"github.com/userspace-proxy/userspace-proxy/proxy"
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
	Name      string          `json:"name"`
	Family    service.Family  `json:"family"`
	Source    string          `json:"source"`
	Internal  string          `json:"internalTrafficPolicy,omitempty"`
	External  string          `json:"externalTrafficPolicy,omitempty"`
	Sources   *[]netip.Prefix `json:"sourceRanges,omitempty"`
	Affinity  string          `json:"affinity,omitempty"`
	Portals   []planPortal    `json:"portals"`
	Endpoints []planEndpoint  `json:"endpoints"`
}

type planPortal struct {
	Kind     service.PortalKind `json:"kind"`
	Addr     netip.AddrPort     `json:"addr"`
	Listener netip.AddrPort     `json:"listener"`
	State    string             `json:"state"`
	Outside  *planOutside       `json:"outside,omitempty"`
}

// planOutside is where what comes from outside is led, where that is elsewhere.
type planOutside struct {
	Listener netip.AddrPort `json:"listener,omitzero"` // none: it is dropped
	State    string         `json:"state"`
}

type planEndpoint struct {
	Addr   netip.AddrPort `json:"addr"`
	Node   string         `json:"node,omitempty"`
	Pod    string         `json:"pod,omitempty"`
	Picked bool           `json:"picked"`
	Local  bool           `json:"local,omitempty"`
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
	used := map[planPlace]uint16{}
	for _, port := range resolved.Ports {
		pp := planPort{
			Name: port.PortName.String(), Family: port.Family, Source: port.Source,
			Portals: []planPortal{}, Endpoints: endpointsOf(port),
		}
		if port.Affinity > 0 {
			pp.Affinity = port.Affinity.String()
		}
		if port.InternalLocal {
			pp.Internal = "Local"
		}
		if port.ExternalLocal {
			pp.External = "Local"
		}
		if port.Sources.Limited {
			ranges := append([]netip.Prefix{}, port.Sources.Allowed...)
			pp.Sources = &ranges
		}
		at := planPlace{port.Family, port.Protocol}
		next := func(needed bool) (listener netip.AddrPort) {
			if needed && r.way != redirectNone {
				listener = netip.AddrPortFrom(r.listen[port.Family], o.meant.ports.First+used[at])
				used[at]++
			}
			return listener
		}
		all, local := next(port.UsesAll()), next(port.UsesLocal())
		for _, portal := range port.Portals {
			if r.way == redirectNone {
				all, local = portal.Addr, portal.Addr
			} else {
				p.redirects = append(p.redirects, port.Redirects(portal, all, local)...)
			}
			pp.Portals = append(pp.Portals, planPortalOf(port, portal, all, local))
		}
		p.Ports = append(p.Ports, pp)
	}
	return p
}

// planPlace is where listeners share a range of ports.
type planPlace struct {
	service.Family
	service.Protocol
}

func planPortalOf(port service.Port, portal service.Portal, all, local netip.AddrPort) planPortal {
	pp := planPortal{Kind: portal.Kind, Addr: portal.Addr, Listener: all, State: proxy.StateServing}
	endpoints := port.Endpoints
	if port.KeepsLocal(portal.Kind, true) {
		pp.Listener, endpoints = local, port.Local
	}
	if len(endpoints) == 0 {
		pp.State = proxy.StateRefusing
	}
	switch {
	case !port.PartsOutside(portal.Kind):
	case len(port.Local) == 0:
		pp.Outside = &planOutside{State: proxy.StateDropping}
	default:
		pp.Outside = &planOutside{Listener: local, State: proxy.StateServing}
	}
	return pp
}

// statusOf is a portal's status as a run would have it.
func (p *plan) statusOf(port service.Port, portal service.Portal) proxy.PortalStatus {
	for _, pp := range p.Ports {
		if pp.Name != port.PortName.String() || pp.Family != port.Family {
			continue
		}
		for _, found := range pp.Portals {
			if found.Addr != portal.Addr {
				continue
			}
			st := proxy.PortalStatus{Kind: found.Kind, Addr: found.Addr, Listener: found.Listener.String(), State: found.State}
			if out := found.Outside; out != nil {
				st.Outside = &proxy.OutsideStatus{State: out.State}
				if out.Listener.IsValid() {
					st.Outside.Listener = out.Listener.String()
				}
			}
			return st
		}
	}
	return proxy.PortalStatus{Kind: portal.Kind, Addr: portal.Addr, State: proxy.StateUnserved}
}

func endpointsOf(port service.Port) []planEndpoint {
	all := []planEndpoint{}
	here := map[netip.AddrPort]bool{}
	for _, e := range port.Local {
		here[e.Addr] = true
	}
	for _, e := range port.Endpoints {
		all = append(all, planEndpoint{e.Addr, e.Node, e.Pod, true, here[e.Addr], "ready"})
		delete(here, e.Addr)
	}
	for _, e := range port.Local {
		if here[e.Addr] {
			all = append(all, planEndpoint{e.Addr, e.Node, e.Pod, true, true, "on this node: for clients who must have such a one"})
		}
	}
	for _, e := range port.Unused {
		all = append(all, planEndpoint{e.Addr, e.Node, e.Pod, false, false, e.Why})
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
	notes := port.notes()
	rows := max(1, len(port.Portals), len(port.Endpoints), 1+len(notes))
	for i := range rows {
		row := make([]string, 5)
		if i == 0 {
			row[0], row[1] = port.Name, string(port.Family)
		} else if i <= len(notes) {
			row[0] = "  " + notes[i-1]
		}
		switch {
		case i < len(port.Portals):
			portal := port.Portals[i]
			row[2], row[3] = string(portal.Kind)+" "+portal.Addr.String(), portal.leadsTo()
		case i == 0:
			row[2] = "none: not served"
		}
		switch {
		case i < len(port.Endpoints):
			e := port.Endpoints[i]
			row[4] = e.Addr.String()
			if e.Local {
				row[4] += " on this node"
			}
			if !e.Picked {
				row[4] += " not picked: " + e.Why
			}
		case i == 0 && len(port.Portals) > 0:
			row[4] = "none: refused at once"
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
}

// notes are what there is to say of a port beside.
func (port planPort) notes() []string {
	var notes []string
	if port.Affinity != "" {
		notes = append(notes, "ClientIP affinity, "+port.Affinity)
	}
	if port.Internal != "" {
		notes = append(notes, "internalTrafficPolicy "+port.Internal)
	}
	if port.External != "" {
		notes = append(notes, "externalTrafficPolicy "+port.External)
	}
	if port.Sources != nil {
		notes = append(notes, "load balancer for "+cmp.Or(strings.Trim(fmt.Sprint(*port.Sources), "[]"), "nobody"))
	}
	return notes
}

// leadsTo is where a portal is led.
func (p planPortal) leadsTo() string {
	to := p.Listener.String()
	switch {
	case p.Outside == nil:
	case !p.Outside.Listener.IsValid():
		to += ", from outside dropped"
	case p.Outside.Listener != p.Listener:
		to += ", from outside " + p.Outside.Listener.String()
	}
	return to
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
