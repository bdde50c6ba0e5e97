package manifest

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestDecode_badInput compares the whole message for everything that can be
// wrong in a file: testdata/bad/x.yaml says what, x.yaml.err is the message.
// UPDATE_GOLDEN=1 writes the messages anew.
func TestDecode_badInput(t *testing.T) {
	t.Parallel()
	inputs, err := filepath.Glob("testdata/bad/*")
	require.NoError(t, err)
	for _, input := range inputs {
		if strings.HasSuffix(input, ".err") {
			continue
		}
		t.Run(filepath.Base(input), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(input)
			require.NoError(t, err)
			_, faults := Decode(Input{Name: filepath.Base(input), Data: data, Node: netip.MustParseAddr("192.0.2.1")})
			require.NotEmpty(t, faults, "the input is bad")
			golden(t, input+".err", ErrorOf(faults).Error()+"\n")
		})
	}
}

// TestDecode_goodInput compares the objects, as YAML, with x.objects.
func TestDecode_goodInput(t *testing.T) {
	t.Parallel()
	inputs, err := filepath.Glob("testdata/good/*")
	require.NoError(t, err)
	for _, input := range inputs {
		if strings.HasSuffix(input, ".objects") {
			continue
		}
		t.Run(filepath.Base(input), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(input)
			require.NoError(t, err)
			objects, faults := Decode(Input{Name: filepath.Base(input), Data: data, Node: netip.MustParseAddr("192.0.2.1")})
			require.NoError(t, ErrorOf(faults))
			golden(t, input+".objects", asYAML(t, objects))

			// What was read is read again as the same.
			again, faults := Decode(Input{Name: "again.yaml", Data: []byte(asYAML(t, objects))})
			require.NoError(t, ErrorOf(faults))
			assert.Equal(t, asYAML(t, objects), asYAML(t, again))
		})
	}
}

// asYAML is objects as another program would write them.
func asYAML(t *testing.T, objects []Object) string {
	t.Helper()
	var b strings.Builder
	for i := range objects {
		text, err := yaml.Marshal(objects[i].any())
		require.NoError(t, err)
		b.WriteString("---\n" + string(text))
	}
	return b.String()
}

// any is the object in its own type.
func (o *Object) any() any {
	switch {
	case o.Service != nil:
		return o.Service
	case o.Slice != nil:
		return o.Slice
	default:
		return o.Endpoints
	}
}

// TestDecode_agreesWithKubernetes reads the same objects by the strict decoder
// of the Kubernetes libraries and compares, defaults set aside.
func TestDecode_agreesWithKubernetes(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"exported.yaml", "yaml.yaml"} {
		data, err := os.ReadFile(filepath.Join("testdata", "good", name))
		require.NoError(t, err)
		var want corev1.Service
		require.NoError(t, yaml.Unmarshal(data, &want))
		want.ManagedFields = nil
		completeMeta(&want.ObjectMeta, defaultNamespace)
		completeService(&want)
		objects, faults := Decode(Input{Name: name, Data: data})
		require.NoError(t, ErrorOf(faults))
		require.Len(t, objects, 1)
		assert.Equal(t, &want, objects[0].Service)
	}
}

func TestDecode_aliasesThatRepeatTooMuch(t *testing.T) {
	t.Parallel()
	bomb := "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web, labels: {kubernetes.io/service-name: web}}\n" +
		"addressType: IPv4\nendpoints:\n- &e {addresses: [" + strings.Repeat("10.10.2.2, ", 1000) + "]}\n" + strings.Repeat("- *e\n", 1000)
	_, faults := Decode(Input{Name: "bomb.yaml", Data: []byte(bomb)})
	require.Len(t, faults, 1)
	assert.Equal(t, ReasonSyntax, faults[0].Reason)
	assert.Regexp(t, `^bomb\.yaml:6: EndpointSlice default/web: endpoints\[2..\]\.addresses\[\d+\]: `+
		`aliases \(\*name\) repeat too much of the file \(write the values out\)$`, faults[0].String())
}

func TestDecode_depth(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a.json", "a.yaml"} {
		for _, bracket := range []string{"[", "{\"a\":"} {
			_, faults := Decode(Input{Name: name, Data: []byte(strings.Repeat(bracket, 20_000))})
			assert.NotEmpty(t, faults, "%s %s", name, bracket)
		}
	}
}

func TestDecode_tellsSoManyFaultsAndNoMore(t *testing.T) {
	t.Parallel()
	ports := aService("web", "10.96.0.1")
	for range 60 {
		ports += "  - port: 80\n"
	}
	_, faults := Decode(Input{Name: "a.yaml", Data: []byte(ports)})
	require.Len(t, faults, mostFaults+1)
	assert.Equal(t, "a.yaml: 71 more faults are not shown", faults[mostFaults].String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile(name, []byte(got), 0o600))
	}
	want, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}

// TestDecode_manyFaults has more faults than anybody reads, each of which would
// be held against all others of its object.
func TestDecode_manyFaults(t *testing.T) {
	t.Parallel()
	text := strings.Builder{}
	text.WriteString("apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}\n")
	for i := range 200_000 {
		fmt.Fprintf(&text, "key%d: 1\n", i)
	}
	_, faults := Decode(Input{Name: "many.yaml", Data: []byte(text.String())})
	require.Len(t, faults, mostFaults+1)
	assert.Equal(t, "many.yaml:5: Service default/web: key0: is not a known field (leave it out)", faults[0].String())
	assert.Equal(t, "many.yaml: 951 more faults are not shown", faults[mostFaults].String())
	assert.NotEqual(t, ReasonUnknownField, faults[mostFaults].Reason, "or the object, which was not read whole, would seem fit for use")
}
