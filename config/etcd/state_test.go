package etcd

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// values is a state without a server.
type values struct {
	*state
	t        *testing.T
	revision int64
}

func newValues(t *testing.T) *values {
	o := Options{}
	o.Defaults()
	return &values{newState(o.directories()), t, 1}
}

// kv is a key as a server tells of it; created is how many revisions ago it was made.
func (v *values) kv(key, value string, created int64) *mvccpb.KeyValue {
	v.revision++
	return &mvccpb.KeyValue{Key: []byte(key), Value: []byte(value), CreateRevision: created, ModRevision: v.revision}
}

// told is what a delta says, as text.
func told(d delta) string {
	var all []string
	for _, o := range d.come {
		all = append(all, "+"+o.String())
	}
	for _, o := range d.gone {
		all = append(all, "-"+o.String())
	}
	return strings.Join(all, " ")
}

func (v *values) put(key, value string, created int64) string {
	var d delta
	v.state.put(v.kv(key, value, created), &d)
	return told(d)
}

func (v *values) remove(key string) string {
	var d delta
	v.state.remove(key, &d)
	return told(d)
}

func (v *values) problemTexts() []string {
	var all []string
	for _, p := range v.problems() {
		all = append(all, p.Reason+" "+p.Object+" ("+p.Advice+")")
	}
	return all
}

func TestState_keepsTheLastGoodObject(t *testing.T) {
	t.Parallel()
	v := newValues(t)
	key := serviceKey("web")
	assert.Equal(t, "+Service default/web", v.put(key, aService("web", "10.96.0.1"), 5))
	assert.Empty(t, v.put(key, aService("web", "10.96.0.1"), 5), "the same again")
	assert.Empty(t, v.put(key, "k8s:enc:aesgcm:", 5))
	require.Len(t, v.problems(), 1)
	assert.Contains(t, v.problemTexts()[0], "ValueEncrypted etcd key "+key)
	assert.Contains(t, v.problemTexts()[0], "; until then the object's last good state stays in use)")
	assert.Len(t, v.objects(), 1)
	assert.Empty(t, v.put(key, "", 5), "another bad value")
	assert.Len(t, v.objects(), 1)
	assert.Equal(t, []string{"ValueUnreadable etcd key " + key + " (to have no object, delete the key; until then the object's last good state stays in use)"}, v.problemTexts())
	assert.Equal(t, "+Service default/web", v.put(key, aService("web", "10.96.0.1"), 5), "good again")
	assert.Empty(t, v.problems())
	assert.Equal(t, "-Service default/web", v.remove(key))
	assert.Empty(t, v.objects())
}

// TestState_deletionIsNoBadValue: what was deleted and is bad since has no last
// good state, even where nobody saw the deletion.
func TestState_deletionIsNoBadValue(t *testing.T) {
	t.Parallel()
	v := newValues(t)
	key := serviceKey("web")
	v.put(key, aService("web", "10.96.0.1"), 5)
	assert.Equal(t, "-Service default/web", v.put(key, "", 7))
	assert.Empty(t, v.objects())
	assert.Equal(t, []string{"ValueUnreadable etcd key " + key + " (to have no object, delete the key)"}, v.problemTexts())
	assert.Empty(t, v.remove(key))
	assert.Empty(t, v.problems())

	v.put(key, aService("web", "10.96.0.1"), 9)
	v.put(key, "", 9)
	assert.Len(t, v.objects(), 1)
	assert.Equal(t, "-Service default/web", v.put(key, "", 11), "the same bad value in another life")
	assert.Empty(t, v.objects())
}

func TestState_replace(t *testing.T) {
	t.Parallel()
	v := newValues(t)
	v.put(serviceKey("a"), aService("a", "10.96.0.1"), 1)
	v.put(serviceKey("b"), aService("b", "10.96.0.2"), 1)
	v.put(serviceKey("c"), aService("c", "10.96.0.3"), 1)
	v.put(sliceKey("a-1"), "bad", 1)
	a := v.entries[serviceKey("a")].object
	v.replace([]*mvccpb.KeyValue{
		v.kv(serviceKey("a"), aService("a", "10.96.0.1"), 4), // made anew, and the same
		v.kv(serviceKey("b"), "bad", 1),
		v.kv(endpointsKey("a"), someEndpoints("a", "10.10.0.1"), 1),
	})
	var got []string
	for _, o := range v.objects() {
		got = append(got, o.String())
	}
	assert.ElementsMatch(t, []string{"Service default/a", "Service default/b", "Endpoints default/a"}, got)
	assert.Same(t, a, v.entries[serviceKey("a")].object)
	require.Len(t, v.problems(), 1, "%v", v.problemTexts())
	assert.Contains(t, v.problemTexts()[0], serviceKey("b"))
	v.replace(nil)
	assert.Empty(t, v.objects())
	assert.Empty(t, v.problems())
	assert.Empty(t, v.entries)
	assert.Empty(t, v.bad)
}

func TestState_keysThatNameNothing(t *testing.T) {
	t.Parallel()
	v := newValues(t)
	for key, printed := range map[string]string{
		"/registry/services/specs/web":                 "/registry/services/specs/web",
		"/registry/services/specs/":                    "/registry/services/specs/",
		"/registry/services/specs/default/":            "/registry/services/specs/default/",
		"/registry/services/specs/default/a/b":         "/registry/services/specs/default/a/b",
		"/registry/services/specs/Default/web":         "/registry/services/specs/Default/web",
		"/registry/services/specs/default/w\n\x1b[1mb": `"/registry/services/specs/default/w\n\x1b[1mb"`,
	} {
		assert.Empty(t, v.put(key, aService("web", "10.96.0.1"), 1), key)
		require.Len(t, v.problems(), 1, key)
		assert.Equal(t, "etcd key "+printed+": does not name a namespace and a name, so it holds no Service"+
			" (write the object to /registry/services/specs/NAMESPACE/NAME)", v.problems()[0].String())
		assert.Empty(t, v.remove(key))
		assert.Empty(t, v.problems())
	}
}

func TestState_tellsSoManyProblemsAndNoMore(t *testing.T) {
	t.Parallel()
	v := newValues(t)
	for i := range 3 * mostProblems {
		v.put(serviceKey(fmt.Sprintf("web-%03d", i)), "k8s:enc:aesgcm:", 1)
	}
	all := v.problems()
	require.Len(t, all, mostProblems+1)
	assert.Equal(t, "etcd key "+serviceKey("web-000"), all[0].Object)
	assert.Equal(t, "ValueEncrypted", all[mostProblems].Reason)
	assert.Equal(t, "etcd keys: 200 more problems are not shown; 300 keys have some", all[mostProblems].String())
}

func TestOptions_prefix(t *testing.T) {
	t.Parallel()
	for prefix, want := range map[string]string{
		"": "/registry/endpointslices/", "registry": "/registry/endpointslices/", "/k8s/x/": "/k8s/x/endpointslices/", "/": "/endpointslices/",
	} {
		o := Options{Prefix: prefix}
		o.Defaults()
		assert.Equal(t, want, o.directories()[1].path, prefix)
	}
}
