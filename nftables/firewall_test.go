package nftables

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/service"
)

func TestCase54_LostIsWhatCameSinceTheLastThatArrived(t *testing.T) {
	t.Parallel()
	var p passage
	for i, s := range []struct{ entered, arrived, lost uint64 }{
		{0, 0, 0},
		{2, 0, 2},
		{2, 0, 2}, // silence says nothing
		{5, 0, 5},
		{9, 1, 0}, // some are kept out, as somebody may want it
		{12, 1, 3},
		{1, 0, 4}, // the rules were made anew
		{3, 2, 0},
		{1, 1, 0}, // and again
		{2, 1, 1},
	} {
		p.see(s.entered, s.arrived, s.entered)
		assert.Equal(t, s.lost, p.lost, "look %d", i)
	}
}

// What comes while it is counted is not lost, not at the next look either.
func TestCase54_PassageWhileItIsCounted(t *testing.T) {
	t.Parallel()
	var p passage
	for i, s := range []struct{ before, arrived, after, lost uint64 }{
		{4, 0, 4, 4},
		{4, 16, 20, 0}, // all of these, which had come after the first count
		{20, 16, 20, 0},
		{20, 18, 24, 0},
		{24, 20, 24, 0},
		{25, 20, 25, 1},
	} {
		p.see(s.before, s.arrived, s.after)
		assert.Equal(t, s.lost, p.lost, "look %d", i)
	}
}

func TestCase54_WhatLetsThrough(t *testing.T) {
	t.Parallel()
	const chains = `{"nftables": [{"metainfo": {"version": "1.0.6"}},
		{"chain": {"family": "ip", "table": "userspace-proxy", "name": "input", "handle": 9, "type": "filter", "hook": "input", "prio": -5, "policy": "accept"}},
		{"chain": {"family": "ip", "table": "filter", "name": "FORWARD", "handle": 2, "type": "filter", "hook": "forward", "prio": 0, "policy": "drop"}},
		{"chain": {"family": "ip", "table": "filter", "name": "INPUT", "handle": 1, "type": "filter", "hook": "input", "prio": 0, "policy": "accept"}},
		{"chain": {"family": "inet", "table": "fw", "name": "helper", "handle": 1}},
		{"chain": {"family": "inet", "table": "fw", "name": "in", "handle": 2, "type": "filter", "hook": "input", "prio": 0, "policy": "%s"}},
		{"chain": {"family": "ip6", "table": "six", "name": "in", "handle": 2, "type": "filter", "hook": "input", "prio": 0, "policy": "drop"}}]}`
	const fw = "nft insert rule inet fw in ct status dnat accept"
	for _, test := range []struct {
		policy string
		family service.Family
		want   []string
	}{
		{"drop", service.IPv4, []string{fw}},
		{"accept", service.IPv4, []string{"iptables -I INPUT -m conntrack --ctstate DNAT -j ACCEPT", fw}},
		{"drop", service.IPv6, []string{fw, "nft insert rule ip6 six in ct status dnat accept"}},
		{"accept", service.IPv6, []string{"nft insert rule ip6 six in ct status dnat accept"}},
	} {
		found, err := inputChains([]byte(strings.Replace(chains, "%s", test.policy, 1)), test.family, TableName)
		require.NoError(t, err)
		var commands []string
		for _, c := range found {
			commands = append(commands, c.letThrough(test.family))
		}
		assert.Equal(t, test.want, commands, "%+v", test)
	}
	assert.Equal(t, "let it through: `a` and `b`", keptOut(service.IPv4, 7, []string{"a", "a", "b"}).Advice)
}
