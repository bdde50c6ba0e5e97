//go:build linux && !portable

package nftables

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

// dump is what the kernel of a host has, as nft lists it in JSON, one object a
// line. What differs between equal states is taken out: handles, counts, and
// the order of elements, which a hash table has.
func dump(t testing.TB, host *nettest.Host) string {
	t.Helper()
	var lines []string
	for _, o := range list(t, host) {
		normalize(o)
		line, err := json.Marshal(o)
		require.NoError(t, err)
		lines = append(lines, string(line))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

// list is the listing of all rules of a host, without the line about nft.
func list(t testing.TB, host *nettest.Host) []map[string]any {
	t.Helper()
	var all struct {
		Objects []map[string]any `json:"nftables"`
	}
	require.NoError(t, json.Unmarshal([]byte(host.Output(t, "nft", "-j", "list", "ruleset")), &all))
	return slices.DeleteFunc(all.Objects, func(o map[string]any) bool { return o["metainfo"] != nil })
}

func normalize(v any) {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "handle")
		if _, isCounter := v["packets"]; isCounter {
			v["packets"], v["bytes"] = 0, 0
		}
		for _, inner := range v {
			normalize(inner)
		}
		if elements, ok := v["elem"].([]any); ok {
			slices.SortFunc(elements, func(a, b any) int { return bytes.Compare(marshal(a), marshal(b)) })
		}
	case []any:
		for _, inner := range v {
			normalize(inner)
		}
	}
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // it came from JSON
	}
	return b
}
