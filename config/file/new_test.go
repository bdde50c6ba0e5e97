package file

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNew_missingPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "dangling.yaml")))
	good := write(t, aService("web", "10.96.0.1"), dir, "good.yaml")
	_, err := New("file", Options{Paths: []string{filepath.Join(dir, "a.yaml"), good, filepath.Join(dir, "dangling.yaml")}})
	require.EqualError(t, err, dir+"/a.yaml: does not exist (give the path of a file or directory)\n"+
		dir+"/dangling.yaml: is a symbolic link to nothing (mend the link or remove it)")
	_, err = New("file", Options{Paths: []string{dir}})
	require.EqualError(t, err, dir+"/dangling.yaml: is a symbolic link to nothing (mend the link or remove it)")
	_, err = New("file", Options{Paths: []string{filepath.Join(good, "b.yaml")}})
	require.EqualError(t, err, good+"/b.yaml: cannot be read: stat: not a directory")
}

func TestNew_tellsAllFaultsOfAllFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, "kind: Job\n", dir, "a.yaml")
	write(t, strings.ReplaceAll(aService("web", "10.96.0.256"), "80", "70000"), dir, "b.yaml")
	_, err := New("file", Options{Paths: []string{dir}})
	require.EqualError(t, err,
		dir+"/a.yaml:1: Job without a name: kind: Job is not read here (leave it out; read are "+kindsRead+")\n"+
			dir+"/b.yaml:6: Service default/web: spec.clusterIP: \"10.96.0.256\" is no IP address"+
			" (write it like 10.96.0.10 or fd00::10; names are not looked up)\n"+
			dir+"/b.yaml:8: Service default/web: spec.ports[0].port: 70000 is no port number (use 1 to 65535)")
}

func TestNew_tooLarge(t *testing.T) {
	t.Parallel()
	name := write(t, "", t.TempDir(), "a.yaml")
	require.NoError(t, os.Truncate(name, largest+1)) // a hole takes no space
	_, err := New("file", Options{Paths: []string{name}})
	require.EqualError(t, err, name+": is larger than 64 MiB (divide it into several files in a directory)")
}

func TestNew_options(t *testing.T) {
	t.Parallel()
	_, err := New("file", Options{})
	require.ErrorContains(t, err, "source file: ")
	require.ErrorContains(t, err, "no path to read Services from")
	_, err = New("file", Options{Paths: []string{"", Stdin}, Poll: -time.Second})
	require.ErrorContains(t, err, "the path of a file with Services is empty")
	require.ErrorContains(t, err, "there is no standard input to read Services from")
	require.ErrorContains(t, err, "the poll interval -1s is negative")
}

func TestNew_stdin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, aService("web", "10.96.0.1"), dir, "a.yaml")
	in := iotest.OneByteReader(strings.NewReader(aService("in", "10.96.0.2")))
	s, err := New("file", Options{Paths: []string{Stdin, dir, Stdin}, Stdin: in, Poll: 5 * time.Millisecond})
	require.NoError(t, err)
	f := &feed{}
	f.run(t, s)
	f.stays(t, "default/in 10.96.0.2", "default/web 10.96.0.1")
	require.NoError(t, os.Remove(filepath.Join(dir, "a.yaml")))
	f.stays(t, "default/in 10.96.0.2") // it cannot be read again, so it stays
}

func TestNew_stdinAlone(t *testing.T) {
	t.Parallel()
	s, err := New("file", Options{Paths: []string{Stdin}, Stdin: strings.NewReader(aService("in", "10.96.0.2")), Poll: 5 * time.Millisecond})
	require.NoError(t, err)
	f := &feed{}
	f.run(t, s)
	f.stays(t, "default/in 10.96.0.2")
}

func TestNew_badStdin(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   io.Reader
		want string
	}{
		"empty":  {strings.NewReader(""), "standard input: is empty, as a file is that is being written (to have no objects in it, say so by a comment or by kind: List with items: [])"},
		"object": {strings.NewReader("\nkind: Job"), "standard input:2: Job without a name: kind: Job is not read here (leave it out; read are " + kindsRead + ")"},
		"JSON":   {strings.NewReader(`{"kind": `), "standard input:1: is not JSON: it ends before its last bracket closes (write the rest)"},
		"error":  {iotest.ErrReader(errors.New("broken pipe")), "standard input: cannot be read: broken pipe"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := New("file", Options{Paths: []string{Stdin}, Stdin: c.in})
			require.EqualError(t, err, c.want)
		})
	}
}

func TestNew_firstFormNeedsTheNodesAddress(t *testing.T) {
	t.Parallel()
	name := write(t, `{"Services": [{"Name": "web", "Port": 80, "Endpoints": ["10.10.2.2:8080"]}]}`, t.TempDir(), "a.json")
	_, err := New("file", Options{Paths: []string{name}})
	require.EqualError(t, err, name+":1: Services: is the first proxy's form, which listens on the node's address, and that is not known"+
		" (write kind: Service with a clusterIP instead)")
	_, err = New("file", Options{Paths: []string{name}, NodeAddr: netip.MustParseAddr("2001:db8::1")})
	require.NoError(t, err)
}

func TestLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, aService("web", "10.96.0.1")+"---\n"+aSlice("web-1", "web"), dir, "a.yaml")
	write(t, aService("web", "10.96.0.2"), dir, "b.yaml")
	services, endpoints, problems, err := Load(Options{Paths: []string{dir}})
	require.NoError(t, err)
	require.Len(t, services.Services, 1)
	assert.Equal(t, "10.96.0.1", services.Services[0].Spec.ClusterIP)
	require.Len(t, endpoints.Slices, 1)
	assert.False(t, endpoints.More)
	require.Len(t, problems, 1)
	assert.Equal(t, "file "+dir+"/b.yaml: Service default/web: line 1: is in "+dir+
		"/a.yaml:1 too, which comes first and is used (remove one of the two)", problems[0].String())

	_, _, _, err = Load(Options{Paths: []string{filepath.Join(dir, "c.yaml")}})
	require.ErrorContains(t, err, "does not exist")
}

// TestExamples reads the files that people are shown.
func TestExamples(t *testing.T) {
	t.Parallel()
	services, endpoints, problems, err := Load(Options{
		Paths:    []string{"../../examples/services.yaml", "../../examples/first-form.json"},
		NodeAddr: netip.MustParseAddr("192.0.2.1"),
	})
	require.NoError(t, err)
	assert.Empty(t, problems)
	assert.NotEmpty(t, services.Services)
	assert.NotEmpty(t, endpoints.Slices)
}
