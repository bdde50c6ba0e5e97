package main

import (
	"cmp"
	"fmt"
	"runtime"
	"strings"
	"text/tabwriter"

	"github.com/userspace-proxy/userspace-proxy/internal/demo"
	"github.com/userspace-proxy/userspace-proxy/internal/layout"
)

// demoPage is what the demo prints: what is there, and commands to paste.
type demoPage struct {
	services []demo.Service
	dir      string
	status   string // address of the status server
	program  string // how it is called
	style    layout.Style
}

// String is the page. Commands, and nothing else, are indented by four.
func (p demoPage) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", p.style.Strong("These Services are served, from backends in this process. Ctrl-C ends it."))
	b.WriteString(p.table())
	if p.services[0].Addr.Addr() == p.services[1].Addr.Addr() {
		b.WriteString("\n  This system has one loopback address, so the Services differ by their ports.\n")
	}
	fmt.Fprintf(&b, "\n%s\n", p.style.Strong("Try this in another terminal:"))
	for _, t := range p.tries() {
		fmt.Fprintf(&b, "\n  %s\n", p.style.Faint("# "+t.about))
		for _, command := range t.commands {
			fmt.Fprintf(&b, "    %s\n", command)
		}
	}
	fmt.Fprintf(&b, "\nThe Services are in %s/services.yaml:\nchange it, and the change is served at once.\n\n", p.dir)
	return b.String()
}

func (p demoPage) table() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  SERVICE\tADDRESS\tBACKENDS\tWHAT IT SHOWS")
	for _, s := range p.services {
		backends := cmp.Or(strings.Join(s.Backends, ", "), "none")
		fmt.Fprintf(w, "  %s\t%s %s\t%s\t%s\n", s.Name, s.Addr, s.Protocol, backends, s.About)
	}
	_ = w.Flush() // a strings.Builder takes everything
	return b.String()
}

// try is something to try.
type try struct {
	about    string
	commands []string
}

func (p demoPage) tries() []try {
	at := map[string]demo.Service{}
	for _, s := range p.services {
		at[s.Name] = s
	}
	curl := func(flags, name string) string { return fmt.Sprintf("curl %s http://%s", flags, at[name].Addr) }
	nc := func(flags, name string) string {
		return fmt.Sprintf("echo hello | nc %s %s %d", flags, at[name].Addr.Addr(), at[name].Addr.Port())
	}
	sticky := []string{times(3, curl("-s", "sticky"))}
	if runtime.GOOS == "linux" { // where a client can have any loopback address
		sticky = append(sticky, times(3, curl("-s --interface 127.0.0.2", "sticky")))
	}
	tries := []try{
		{"another backend each time", []string{times(4, curl("-s", "web"))}},
		{demo.Mortal + " goes and comes back, and no request fails", []string{times(60, curl("-sS", "web")+"; sleep 0.5")}},
		{"one client, one backend", sticky},
	}
	if runtime.GOOS != "windows" { // which comes without nc
		tries = append(tries,
			try{"TCP: the server speaks first", []string{nc("-w 1", "echo")}},
			try{"UDP", []string{nc("-u -w 1", "datagram")}})
	}
	return append(tries,
		try{"no backend: refused at once, nothing hangs", []string{curl("-sS", "nobody")}},
		try{"what is served, and why an endpoint is picked or not", []string{p.ask("status")}},
		try{"what would become of one packet, step by step", []string{p.ask("explain tcp " + at["web"].Addr.String())}})
}

// ask is a command that asks this very proxy.
func (p demoPage) ask(what string) string {
	command := p.program + " " + what
	if "http://"+p.status != defaultAddress {
		command += " --address " + p.status
	}
	return command
}

// times repeats a command, as the system's shell does it.
func times(n int, command string) string {
	if runtime.GOOS == "windows" {
		return fmt.Sprintf("1..%d | %% { %s }", n, strings.ReplaceAll(command, "curl ", "curl.exe "))
	}
	if n < 10 {
		return fmt.Sprintf("for i in %s; do %s; done", strings.Join(strings.Fields("1 2 3 4 5 6 7 8 9")[:n], " "), command)
	}
	return fmt.Sprintf("for i in $(seq %d); do %s; done", n, command)
}

// style is for a terminal that shows colours to somebody who wants them
// (no-color.org).
func (m *Main) style() layout.Style {
	_, ok := m.terminal()
	return layout.Style(ok && m.Getenv("NO_COLOR") == "")
}
