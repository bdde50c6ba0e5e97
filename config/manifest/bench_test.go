package manifest

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// thousandsOf is a file with n Services and an EndpointSlice of four for each.
func thousandsOf(n int) []byte {
	var b strings.Builder
	for i := range n {
		name := fmt.Sprintf("web-%d", i)
		b.WriteString("---\n" + aService(name, netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}).String()))
		b.WriteString("---\n" + aSlice(name+"-x", name) + "- addresses: [10.10.2.3]\n- addresses: [10.10.2.4]\n- addresses: [10.10.2.5]\n")
	}
	return []byte(b.String())
}

func BenchmarkDecodeYAML(b *testing.B) { benchmarkDecode(b, "a.yaml", thousandsOf(10_000)) }

func BenchmarkDecodeJSON(b *testing.B) {
	objects, faults := Decode(Input{Name: "a.yaml", Data: thousandsOf(10_000)})
	require.Empty(b, faults)
	benchmarkDecode(b, "a.json", asJSON(b, objects))
}

func benchmarkDecode(b *testing.B, name string, data []byte) {
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		objects, faults := Decode(Input{Name: name, Data: data})
		if len(objects) != 20_000 || len(faults) > 0 {
			b.Fatal(len(objects), ErrorOf(faults))
		}
	}
}
