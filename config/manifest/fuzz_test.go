package manifest

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzDecode feeds the decoder anything: it never panics, every fault has a
// message and a line that exists, and objects that it read, written as JSON by
// the Kubernetes types themselves, are read again as the same.
func FuzzDecode(f *testing.F) {
	for _, pattern := range []string{"testdata/*/*.yaml", "testdata/*/*.yml", "testdata/*/*.json", "../../examples/*.yaml", "../../examples/*.json"} {
		names, err := filepath.Glob(pattern)
		require.NoError(f, err)
		for _, name := range names {
			data, err := os.ReadFile(name)
			require.NoError(f, err)
			f.Add(data, filepath.Ext(name) == ".json")
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, isJSON bool) {
		name := "fuzz.yaml"
		if isJSON {
			name = "fuzz.json"
		}
		objects, faults := Decode(Input{Name: name, Data: data, Node: netip.MustParseAddr("192.0.2.1")})
		for _, fault := range faults {
			require.NotEmpty(t, fault.Detail)
			require.NotEmpty(t, fault.Reason)
			require.GreaterOrEqual(t, fault.Line, 0)
			require.LessOrEqual(t, fault.Line, bytes.Count(data, []byte("\n"))+bytes.Count(data, []byte("\r"))+1+
				bytes.Count(data, []byte("\u2028"))+bytes.Count(data, []byte("\u2029"))+bytes.Count(data, []byte("\u0085")), fault.String())
		}
		if len(faults) > 0 {
			return
		}
		first := asJSON(t, objects)
		again, faults := Decode(Input{Name: "again.json", Data: first})
		if len(objects) > 0 {
			require.NoError(t, ErrorOf(faults), "%s", first)
			require.Equal(t, string(first), string(asJSON(t, again)))
		}
	})
}

// asJSON is objects as JSON texts in a row.
func asJSON(t testing.TB, objects []Object) []byte {
	t.Helper()
	var b bytes.Buffer
	for i := range objects {
		require.NoError(t, json.NewEncoder(&b).Encode(objects[i].any()))
	}
	return b.Bytes()
}
