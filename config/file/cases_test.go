package file

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// configMap lays files out as the kubelet does: names are links to ..data/name,
// ..data is a link to a directory that is new for each state.
type configMap struct {
	dir   string
	state int
}

func (m *configMap) set(t *testing.T, files map[string]string) {
	t.Helper()
	m.state++
	next := "..2026_01_0" + string(rune('0'+m.state))
	require.NoError(t, os.Mkdir(filepath.Join(m.dir, next), 0o700))
	for name, content := range files {
		write(t, content, m.dir, next, name)
	}
	data := filepath.Join(m.dir, "..data")
	old, _ := os.Readlink(data)
	require.NoError(t, os.Symlink(next, data+"_tmp"))
	require.NoError(t, os.Rename(data+"_tmp", data))
	for name := range files {
		if err := os.Symlink("..data/"+name, filepath.Join(m.dir, name)); !os.IsExist(err) {
			require.NoError(t, err)
		}
	}
	entries, err := os.ReadDir(m.dir)
	require.NoError(t, err)
	for _, e := range entries {
		if _, has := files[e.Name()]; !has && isSource(e.Name()) {
			require.NoError(t, os.Remove(filepath.Join(m.dir, e.Name())))
		}
	}
	if old != "" {
		require.NoError(t, os.RemoveAll(filepath.Join(m.dir, old)))
	}
}

func TestCase38_configMapSwapsItsLink(t *testing.T) {
	t.Parallel()
	for _, named := range []string{"directory", "file"} {
		t.Run(named, func(t *testing.T) {
			t.Parallel()
			m := configMap{dir: t.TempDir()}
			m.set(t, map[string]string{"a.yaml": aService("a", "10.96.0.1")})
			path := m.dir
			if named == "file" {
				path = filepath.Join(m.dir, "a.yaml")
			}
			f := start(t, never, path)
			f.shows(t, "default/a 10.96.0.1")
			for _, ip := range []string{"10.96.0.2", "10.96.0.3", "10.96.0.4"} {
				m.set(t, map[string]string{"a.yaml": aService("a", ip)})
				f.shows(t, "default/a "+ip)
			}
			if named == "file" {
				return
			}
			m.set(t, map[string]string{"a.yaml": aService("a", "10.96.0.5"), "b.yaml": aService("b", "10.96.0.6")})
			f.shows(t, "default/a 10.96.0.5", "default/b 10.96.0.6")
			m.set(t, map[string]string{"b.yaml": aService("b", "10.96.0.6")})
			f.shows(t, "default/b 10.96.0.6")
		})
	}
}

func TestCase38_halfWrittenFileKeepsItsLastGoodContent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := write(t, aService("web", "10.96.0.1"), dir, "a.yaml")
	write(t, aService("other", "10.96.1.1"), dir, "b.yaml")
	f := start(t, 5*time.Millisecond, dir)

	kept := "; until then the file's last good content stays in use)"
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_TRUNC, 0)
	require.NoError(t, err)
	f.stays(t, "default/web 10.96.0.1", "default/other 10.96.1.1",
		"FileSyntax: file "+name+": is empty, as a file is that is being written"+
			" (to have no objects in it, say so by a comment or by kind: List with items: []"+kept)

	half := "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\nspec:\n  clusterIP: 10.96.0.2\n"
	_, err = file.WriteString(half)
	require.NoError(t, err)
	f.stays(t, "default/web 10.96.0.1", "default/other 10.96.1.1",
		"MissingValue: file "+name+": Service default/web spec.ports: line 6: is empty (list at least one port"+kept)

	write(t, aService("other", "10.96.1.2"), dir, "b.yaml") // the other file goes on
	f.stays(t, "default/web 10.96.0.1", "default/other 10.96.1.2",
		"MissingValue: file "+name+": Service default/web spec.ports: line 6: is empty (list at least one port"+kept)

	_, err = file.WriteString("  ports: [{port: 80}]\n")
	require.NoError(t, err)
	require.NoError(t, file.Close())
	f.shows(t, "default/web 10.96.0.2", "default/other 10.96.1.2")
}

func TestCase38_badFileIsReportedWithLineAndReason(t *testing.T) {
	t.Parallel()
	name := write(t, aService("web", "10.96.0.1"), t.TempDir(), "a.yaml")
	f := start(t, never, name)
	write(t, aService("web", "10.96.0.2")+"\tclusterIP: 10.96.0.3\n", name)
	f.shows(t, "default/web 10.96.0.1", "FileSyntax: file "+name+": line 9: a tab indents this line"+
		" (YAML is indented with spaces: put spaces in the tab's place; until then the file's last good content stays in use)")
	write(t, aService("web", "10.96.0.2")+"  - port: 0\n  - port: 1\n    nam: x\n", name)
	kept := "; until then the file's last good content stays in use)"
	f.shows(t, "default/web 10.96.0.1",
		"MissingValue: file "+name+": Service default/web spec.ports[0].name: line 8: is missing (name every port where there are several"+kept,
		"MissingValue: file "+name+": Service default/web spec.ports[1].name: line 9: is missing (name every port where there are several"+kept,
		"InvalidValue: file "+name+": Service default/web spec.ports[1].port: line 9: 0 is no port number (use 1 to 65535"+kept,
		"MissingValue: file "+name+": Service default/web spec.ports[2].name: line 10: is missing (name every port where there are several"+kept,
		"UnknownField: file "+name+": Service default/web spec.ports[2].nam: line 11: is not a known field (did you mean name?"+kept)
	write(t, "# nothing any more\n", name)
	f.shows(t, "")
}

// TestCase38_badFileThatIsNew has no last good content; the others go on.
func TestCase38_badFileThatIsNew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, aService("web", "10.96.0.1"), dir, "a.yaml")
	f := start(t, never, dir)
	write(t, "kind: Job\n", dir, "b.yaml")
	f.shows(t, "default/web 10.96.0.1", "UnknownKind: file "+dir+"/b.yaml: Job without a name kind: line 1: "+
		"Job is not read here (leave it out; read are "+kindsRead+")")
	require.NoError(t, os.Remove(filepath.Join(dir, "b.yaml")))
	f.shows(t, "default/web 10.96.0.1")
}
