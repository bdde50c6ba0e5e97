package main

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"
)

// results are what became of each spec with each proxy.
type results struct {
	specs map[string]map[string]outcome // by spec and proxy
	took  map[string]time.Duration      // by proxy
}

func newResults() *results {
	return &results{make(map[string]map[string]outcome), make(map[string]time.Duration)}
}

// outcome of a spec that ran.
type outcome struct {
	passed bool
	again  bool   // it ran a second time, because it had failed
	why    string // it has failed, the first time
}

// suites is JUnit's form, as far as it matters here.
type suites struct {
	Seconds float64 `xml:"time,attr"`
	Cases   []struct {
		Name    string    `xml:"name,attr"`
		Skipped *struct{} `xml:"skipped"`
		Failure *fault    `xml:"failure"`
		Error   *fault    `xml:"error"`
	} `xml:"testsuite>testcase"`
}

// fault is what a spec failed of: ginkgo writes it as text, others as a message.
type fault struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func (f *fault) why() string {
	why, _, _ := strings.Cut(cmp.Or(f.Message, f.Text), "\nIn [It] at: ") // a place in Kubernetes' code
	return strings.TrimPrefix(strings.TrimSpace(why), "[FAILED] ")
}

// read adds the specs that ran with a proxy.
func (r *results) read(proxy string, junit []byte) error {
	var s suites
	if err := xml.Unmarshal(junit, &s); err != nil {
		return err
	}
	r.took[proxy] += time.Duration(s.Seconds * float64(time.Second))
	for _, c := range s.Cases {
		name, isSpec := strings.CutPrefix(c.Name, "[It] [sig-network] ")
		if !isSpec || c.Skipped != nil {
			continue
		}
		o := outcome{passed: c.Failure == nil && c.Error == nil}
		switch {
		case c.Failure != nil:
			o.why = c.Failure.why()
		case c.Error != nil:
			o.why = c.Error.why()
		}
		if r.specs[name] == nil {
			r.specs[name] = make(map[string]outcome)
		}
		if first, ran := r.specs[name][proxy]; ran {
			o.again, o.why = true, first.why
		}
		r.specs[name][proxy] = o
	}
	return nil
}

// document is the Markdown file.
func (r *results) document(kubernetes string) string {
	proxies := ordered(r.took)
	var b strings.Builder
	fmt.Fprintf(&b, intro, kubernetes, runtime.NumCPU())
	b.WriteString("| proxy | specs | passed | failed | took |\n|---|--:|--:|--:|--:|\n")
	for _, proxy := range proxies {
		ran, passed := r.count(proxy)
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %v |\n", called(proxy), ran, passed, ran-passed, r.took[proxy].Round(time.Second))
	}
	b.WriteString("\n## Spec by spec\n\n| spec |")
	for _, proxy := range proxies {
		fmt.Fprintf(&b, " %s |", called(proxy))
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(proxies)) + "\n")
	for _, name := range slices.Sorted(maps.Keys(r.specs)) {
		fmt.Fprintf(&b, "| %s |", escaped(name))
		for _, proxy := range proxies {
			o, ran := r.specs[name][proxy]
			fmt.Fprintf(&b, " %s |", word(o, ran))
		}
		b.WriteString("\n")
	}
	if failures := r.failures(proxies); failures != "" {
		b.WriteString("\n## What failed, and how\n\n" + failures)
	}
	return b.String()
}

func word(o outcome, ran bool) string {
	switch {
	case !ran:
		return "–"
	case o.passed && o.again:
		return "pass, run again"
	case o.passed:
		return "pass"
	}
	return "**fail**"
}

func (r *results) count(proxy string) (ran, passed int) {
	for _, with := range r.specs {
		if o, ok := with[proxy]; ok {
			ran++
			if o.passed {
				passed++
			}
		}
	}
	return ran, passed
}

func (r *results) failures(proxies []string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r.specs)) {
		for _, proxy := range proxies {
			o, ran := r.specs[name][proxy]
			switch {
			case ran && !o.passed:
				fmt.Fprintf(&b, "- %s, with %s: %s%s\n", escaped(name), called(proxy), escaped(short(o.why)), because(name, proxy))
			case ran && o.again:
				fmt.Fprintf(&b, "- %s, with %s, passed when it ran again, without others beside it; before: %s\n", escaped(name), called(proxy), escaped(short(o.why)))
			}
		}
	}
	return b.String()
}

// short is a message's beginning, on one line.
func short(message string) string {
	const most = 300
	runes := []rune(strings.Join(strings.Fields(message), " "))
	if len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return string(runes)
}

// escaped is text as a cell of a Markdown table has it.
func escaped(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "[", `\[`, "]", `\]`, "*", `\*`, "_", `\_`).Replace(s)
}

const intro = `# Conformance

Kubernetes' own end-to-end specs about Services and dual stack, in a cluster of three
nodes with IPv4 and IPv6 on one machine ([e2e/cluster](../e2e/cluster/README.md)),
Kubernetes %s: real pods, kubelets, containerd, and on every node the service proxy that
is named. userspace-proxy is there as
[deploy/kubernetes](../deploy/kubernetes/userspace-proxy.yaml) puts it there: image,
DaemonSet, account, rights and configuration. This file is written by

` + "```sh" + `
make e2e-cluster                                 # all of it, on a fresh machine
e2e/cluster/conformance.sh kube-proxy-nftables   # one column anew
` + "```" + `

How long each run took is below, on %d cores; other work on the machine makes it longer.
What the nodes are made of takes 12 to 25 minutes to build, once.

Left out are specs that reboot nodes, need SCTP, or a cloud with load balancers.

`
