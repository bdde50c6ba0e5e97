package file

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/config"
)

func TestSource_sendsEndpointsThenServicesThenStatus(t *testing.T) {
	t.Parallel()
	name := write(t, aService("web", "10.96.0.1")+"---\n"+aSlice("web-1", "web"), t.TempDir(), "a.yaml")
	f := start(t, never, name)
	f.shows(t, "default/web 10.96.0.1", "default/web-1")
	assert.Equal(t, []string{"SET endpoints more", "SET services"}, f.sequence())

	// What did not change is not sent again.
	replace(t, aService("web", "10.96.0.2")+"---\n"+aSlice("web-1", "web"), name)
	f.shows(t, "default/web 10.96.0.2", "default/web-1")
	assert.Equal(t, []string{"SET endpoints more", "SET services", "SET services"}, f.sequence())
	replace(t, aService("web", "10.96.0.2")+"---\n"+aSlice("web-2", "web"), name)
	f.shows(t, "default/web 10.96.0.2", "default/web-2")
	assert.Equal(t, []string{"SET endpoints more", "SET services", "SET services", "SET endpoints"}, f.sequence())
}

func TestSource_sendsNothingWhereTheContentIsTheSame(t *testing.T) {
	t.Parallel()
	name := write(t, aService("web", "10.96.0.1"), t.TempDir(), "a.yaml")
	f := start(t, 5*time.Millisecond, name)
	replace(t, "# a comment\n"+aService("web", "10.96.0.1"), name)
	f.stays(t, "default/web 10.96.0.1")
	replace(t, aService("web", "10.96.0.2"), name)
	f.shows(t, "default/web 10.96.0.2")
	assert.Equal(t, []string{"SET endpoints more", "SET services", "SET services"}, f.sequence())
}

func TestSource_emptyDirectoryIsAFullState(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := start(t, never, dir)
	f.shows(t, "")
	assert.Equal(t, []string{"SET endpoints more", "SET services"}, f.sequence())
	assert.NotZero(t, f.status.Checked)
	write(t, aService("web", "10.96.0.1"), dir, "a.yaml")
	f.shows(t, "default/web 10.96.0.1")
}

func TestSource_directory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, aService("a", "10.96.0.1"), dir, "1.yaml")
	write(t, aService("b", "10.96.0.2"), dir, "2.yml")
	write(t, `{"kind":"List","apiVersion":"v1","items":[]}`, dir, "3.json")
	write(t, "not read", dir, "README.md")
	write(t, "not read", dir, ".4.yaml")
	write(t, "not read", dir, "5.yaml~")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "6.yaml"), 0o700))
	write(t, "not read", dir, "6.yaml", "a.yaml")
	require.NoError(t, os.Symlink("6.yaml", filepath.Join(dir, "7.yaml")))
	elsewhere := write(t, aService("c", "10.96.0.3"), t.TempDir(), "c.txt")
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(dir, "8.yaml")))
	f := start(t, never, dir)
	f.shows(t, "default/a 10.96.0.1", "default/b 10.96.0.2", "default/c 10.96.0.3")

	// A file that comes, one that changes behind a link, one that goes.
	write(t, aService("d", "10.96.0.4"), dir, "0.yaml")
	f.shows(t, "default/d 10.96.0.4", "default/a 10.96.0.1", "default/b 10.96.0.2", "default/c 10.96.0.3")
	write(t, aService("c", "10.96.0.33"), elsewhere)
	f.shows(t, "default/d 10.96.0.4", "default/a 10.96.0.1", "default/b 10.96.0.2", "default/c 10.96.0.33")
	require.NoError(t, os.Remove(filepath.Join(dir, "1.yaml")))
	f.shows(t, "default/d 10.96.0.4", "default/b 10.96.0.2", "default/c 10.96.0.33")
	require.NoError(t, os.Rename(filepath.Join(dir, "2.yml"), filepath.Join(dir, "2.bak")))
	f.shows(t, "default/d 10.96.0.4", "default/c 10.96.0.33")
	assert.Empty(t, f.logs.AllEntries())
}

func TestSource_directoryThatIsReplaced(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	dir := filepath.Join(base, "services")
	for _, d := range []string{"services", "next"} {
		require.NoError(t, os.Mkdir(filepath.Join(base, d), 0o700))
	}
	write(t, aService("a", "10.96.0.1"), dir, "a.yaml")
	write(t, aService("b", "10.96.0.2"), base, "next", "b.yaml")
	f := start(t, never, dir)
	f.shows(t, "default/a 10.96.0.1")

	gone := "FileUnreadable: file " + dir + ": does not exist" +
		" (give the path of a file or directory; until then what was read from it stays in use)"
	require.NoError(t, os.Rename(dir, filepath.Join(base, "old")))
	f.shows(t, "default/a 10.96.0.1", gone,
		"error: "+dir+": does not exist (give the path of a file or directory)")
	require.NoError(t, os.Rename(filepath.Join(base, "next"), dir))
	f.shows(t, "default/b 10.96.0.2")
	write(t, aService("c", "10.96.0.3"), dir, "c.yaml")
	f.shows(t, "default/b 10.96.0.2", "default/c 10.96.0.3")
}

// TestSource_editors replaces files as editors do.
func TestSource_editors(t *testing.T) {
	t.Parallel()
	for name, save := range map[string]func(t *testing.T, name, content string){
		"in place": func(t *testing.T, name, content string) { write(t, content, name) },
		"rename":   func(t *testing.T, name, content string) { replace(t, content, name) },
		"vi": func(t *testing.T, name, content string) {
			require.NoError(t, os.Rename(name, name+"~"))
			write(t, content, name)
			require.NoError(t, os.Remove(name+"~"))
		},
		"emacs": func(t *testing.T, name, content string) {
			lock := filepath.Join(filepath.Dir(name), ".#"+filepath.Base(name))
			require.NoError(t, os.Symlink("me@here.1:1", lock))
			old, err := os.ReadFile(name)
			require.NoError(t, err)
			write(t, string(old), name+"~")
			write(t, content, name)
			require.NoError(t, os.Remove(lock))
		},
		"remove and create": func(t *testing.T, name, content string) {
			require.NoError(t, os.Remove(name))
			write(t, content, name)
		},
	} {
		for _, named := range []string{"file", "directory"} {
			t.Run(name+"/"+named, func(t *testing.T) {
				t.Parallel()
				path := write(t, aService("web", "10.96.0.1"), t.TempDir(), "a.yaml")
				f := start(t, never, map[string]string{"file": path, "directory": filepath.Dir(path)}[named])
				for _, ip := range []string{"10.96.0.2", "10.96.0.3", "10.96.0.4"} {
					save(t, path, aService("web", ip))
					f.shows(t, "default/web "+ip)
				}
			})
		}
	}
}

func TestSource_namedFileThatVanishesKeepsItsState(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := write(t, aService("web", "10.96.0.1"), dir, "services.conf") // a named file may be called anything
	f := start(t, never, name)
	require.NoError(t, os.Remove(name))
	f.shows(t, "default/web 10.96.0.1", "FileUnreadable: file "+name+": does not exist"+
		" (give the path of a file or directory; until then what was read from it stays in use)",
		"error: "+name+": does not exist (give the path of a file or directory)")
	assert.Equal(t, []string{"SET endpoints more", "SET services"}, f.sequence())
	write(t, aService("web", "10.96.0.2"), name)
	f.shows(t, "default/web 10.96.0.2")
}

func TestSource_namedFileInNamedDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := write(t, aService("a", "10.96.0.1"), dir, "a.yaml")
	write(t, aService("b", "10.96.0.2"), dir, "b.yaml")
	require.NoError(t, os.Symlink("a.yaml", filepath.Join(dir, "z.yaml")))
	f := start(t, never, dir, dir+"/./", a, a) // each file is read once
	f.shows(t, "default/a 10.96.0.1", "default/b 10.96.0.2")
	require.NoError(t, os.Remove(filepath.Join(dir, "z.yaml")))
	require.NoError(t, os.Remove(a)) // it is named, so its state stays; the others of the directory go on
	require.NoError(t, os.Remove(filepath.Join(dir, "b.yaml")))
	f.shows(t, "default/a 10.96.0.1", "FileUnreadable: file "+a+": does not exist"+
		" (give the path of a file or directory; until then what was read from it stays in use)",
		"error: "+a+": does not exist (give the path of a file or directory)")
}

func TestSource_sameObjectInTwoFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, aService("web", "10.96.0.1")+"---\n"+aService("a", "10.96.0.3"), dir, "a.yaml")
	write(t, "\n"+aService("web", "10.96.0.2")+"---\n"+aService("b", "10.96.0.4"), dir, "b.yaml")
	f := start(t, never, dir)
	twice := "DuplicateObject: file " + dir + "/b.yaml: Service default/web: line 2: is in " + dir +
		"/a.yaml:1 too, which comes first and is used (remove one of the two)"
	f.shows(t, "default/web 10.96.0.1", "default/a 10.96.0.3", "default/b 10.96.0.4", twice)
	require.NoError(t, os.Remove(filepath.Join(dir, "a.yaml")))
	f.shows(t, "default/web 10.96.0.2", "default/b 10.96.0.4")

	// The order of the paths is the order of the files.
	g := start(t, never, write(t, aService("web", "10.96.0.9"), t.TempDir(), "z.yaml"), dir)
	g.shows(t, "default/web 10.96.0.9", "default/b 10.96.0.4", strings.NewReplacer(dir+"/a.yaml:1",
		g.origin(0)+":1").Replace(twice))
}

// origin is the file that a duplicate's problem says to come first.
func (f *feed) origin(i int) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, rest, _ := strings.Cut(f.status.Problems[i].Detail, "is in ")
	name, _, _ := strings.Cut(rest, ":1 too")
	return name
}

func TestSource_pollsWhatNoWatchSees(t *testing.T) {
	t.Parallel()
	// The link in the middle is in a directory that nobody watches.
	base := t.TempDir()
	for _, d := range []string{"links", "v1", "v2", "named"} {
		require.NoError(t, os.Mkdir(filepath.Join(base, d), 0o700))
	}
	write(t, aService("web", "10.96.0.1"), base, "v1", "web")
	write(t, aService("web", "10.96.0.2"), base, "v2", "web")
	middle := filepath.Join(base, "links", "current")
	require.NoError(t, os.Symlink("../v1", middle))
	require.NoError(t, os.Symlink("../links/current/web", filepath.Join(base, "named", "web.yaml")))
	f := start(t, 20*time.Millisecond, filepath.Join(base, "named"))
	f.shows(t, "default/web 10.96.0.1")
	require.NoError(t, os.Symlink("../v2", middle+"~"))
	require.NoError(t, os.Rename(middle+"~", middle))
	f.shows(t, "default/web 10.96.0.2")
}

func TestSource_linkOnTheWayToANamedFile(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	for _, d := range []string{"v1", "v2"} {
		require.NoError(t, os.Mkdir(filepath.Join(base, d), 0o700))
	}
	write(t, aService("web", "10.96.0.1"), base, "v1", "web.yaml")
	write(t, aService("web", "10.96.0.2"), base, "v2", "web.yaml")
	current := filepath.Join(base, "current")
	require.NoError(t, os.Symlink("v1", current))
	f := start(t, never, filepath.Join(current, "web.yaml"))
	f.shows(t, "default/web 10.96.0.1")
	require.NoError(t, os.Symlink("v2", current+"~"))
	require.NoError(t, os.Rename(current+"~", current))
	f.shows(t, "default/web 10.96.0.2")
}

// TestSource_fileThatIsReplacedWithoutEnd is read at last, although it never
// rests for the settling time.
func TestSource_fileThatIsReplacedWithoutEnd(t *testing.T) {
	t.Parallel()
	name := write(t, aService("web", "10.96.0.1"), t.TempDir(), "a.yaml")
	f := start(t, never, name)
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-time.After(10 * time.Millisecond):
				_ = os.WriteFile(name+"~", []byte(aService("web", "10.96.0.2")), 0o600)
				_ = os.Rename(name+"~", name)
			}
		}
	}()
	f.shows(t, "default/web 10.96.0.2")
	close(done)
	<-ended
}

func TestSource_endsWithItsContext(t *testing.T) {
	t.Parallel()
	s, err := New("named", Options{Paths: []string{t.TempDir()}})
	require.NoError(t, err)
	assert.Equal(t, "named", s.Name())
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	// Nobody takes what it sends.
	assert.NoError(t, s.Run(ctx, config.Updates{}))
}
