package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// changes are what was lost with each proxy, in order of what happened.
type changes map[string][]*change

// change is something that happened to the cluster, and what all clients together
// lost meanwhile. It is a line of what command load prints.
type change struct {
	During    string  `json:"during"`
	Seconds   float64 `json:"seconds"`
	Short     tally   `json:"short"`
	Long      tally   `json:"long"`
	Datagrams tally   `json:"datagrams"`
	Senders   tally   `json:"senders"`
}

type tally struct {
	Tried int            `json:"tried"`
	Lost  map[string]int `json:"lost"` // by cause
}

// read adds the lines of one proxy.
func (c changes) read(proxy string, lines []byte) error {
	c[proxy] = nil
	for d := json.NewDecoder(bytes.NewReader(lines)); ; {
		var one change
		switch err := d.Decode(&one); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		sum := c.find(proxy, one.During)
		if sum == nil {
			sum = &change{During: one.During}
			c[proxy] = append(c[proxy], sum)
		}
		sum.Seconds = max(sum.Seconds, one.Seconds)
		for i, t := range one.tallies() {
			sum.tallies()[i].add(t)
		}
	}
}

// find is nil where it did not happen with the proxy.
func (c changes) find(proxy, during string) *change {
	for _, one := range c[proxy] {
		if one.During == during {
			return one
		}
	}
	return nil
}

func (c *change) tallies() []*tally { return []*tally{&c.Short, &c.Long, &c.Datagrams, &c.Senders} }

func (t *tally) add(more *tally) {
	t.Tried += more.Tried
	for cause, n := range more.Lost {
		if t.Lost == nil {
			t.Lost = make(map[string]int)
		}
		t.Lost[cause] += n
	}
}

// String is how many were lost of how many, by cause.
func (t *tally) String() string {
	all := 0
	var causes []string
	for _, cause := range slices.Sorted(maps.Keys(t.Lost)) {
		all += t.Lost[cause]
		causes = append(causes, fmt.Sprintf("%d %s", t.Lost[cause], escaped(cause)))
	}
	switch {
	case all == 0:
		return fmt.Sprintf("none of %d", t.Tried)
	case len(causes) == 1:
		return fmt.Sprintf("**%s** of %d", causes[0], t.Tried)
	}
	return fmt.Sprintf("**%d** of %d: %s", all, t.Tried, strings.Join(causes, ", "))
}

// document is the second part of the Markdown file; empty where nothing is known.
func (c changes) document() string {
	if len(c) == 0 {
		return ""
	}
	proxies := ordered(c)
	var during []string // in the order of the first proxy that has it
	for _, proxy := range proxies {
		for _, one := range c[proxy] {
			if !slices.Contains(during, one.During) {
				during = append(during, one.During)
			}
		}
	}
	var b strings.Builder
	b.WriteString(beyond)
	b.WriteString("| meanwhile | lost |")
	for _, proxy := range proxies {
		fmt.Fprintf(&b, " %s |", called(proxy))
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(proxies)) + "\n")
	for _, d := range during {
		first := d // once is enough
		for i, kind := range []string{"short connections", "long connections", "single datagrams", "datagrams of long senders"} {
			fmt.Fprintf(&b, "| %s | %s |", first, kind)
			first = ""
			for _, proxy := range proxies {
				if one := c.find(proxy, d); one != nil {
					fmt.Fprintf(&b, " %v |", one.tallies()[i])
				} else {
					b.WriteString(" – |")
				}
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

const beyond = `
## Beyond the specs

What a load loses while the cluster changes ([churn.sh](../e2e/cluster/churn.sh)): a pod
on each node asks a Service by its cluster IP, and a client outside by its node port on
all nodes in turn. Each of the four begins 40 short connections a second (one HTTP
request), has 6 long ones (a request every 200 ms), sends 20 datagrams a second from a
port of its own each, and has 6 senders that keep theirs. What begins does not wait for
what hangs. A long connection that breaks, or is refused, begins anew after 200 ms and is
counted again. Behind the Service are six pods; a connection ends with the pod that it
leads to, whatever the proxy. Connections and datagrams are given up after 3 s. A datagram
to a pod that has ended, of which the proxy has not heard yet, is lost with any proxy: with
kube-proxy the client is mostly told so, and counts it as refused; with this one it times out.

This proxy is started anew as its DaemonSet is: on one node after the other a new pod
starts beside the old one and takes over from it, and the old one ends with the last of
its connections ([ADR 18](adr/0018-takeover.md)). kube-proxy is a process here, which is
ended and at once started again; its rules, which have the connections, stay.

`
