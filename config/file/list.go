package file

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/userspace-proxy/userspace-proxy/config/manifest"
)

// list finds the files that the paths mean now, in the order of the paths and
// then of their names, each once. What is known about a file stays with it.
//
// A path that cannot be listed is a fault, and keeps what was known under it:
// a mount that is away for a moment takes nothing along.
func list(paths []string, known []*origin) (found []*origin, faults []*manifest.Fault) {
	byName := make(map[string]*origin, len(known))
	for _, o := range known {
		byName[o.name] = o
	}
	seen := map[string]bool{} // by real path
	add := func(o *origin) {
		if !seen[o.real] {
			seen[o.real] = true
			found = append(found, o)
		}
	}
	for _, path := range paths {
		if path == Stdin {
			if o := byName[stdinName]; o != nil {
				add(o)
			}
			continue
		}
		names, err := expand(path)
		if err != nil {
			faults = append(faults, troubleOf(path, err))
			for _, o := range known {
				if o.under == path || o.name == path {
					o.away = true
					add(o)
				}
			}
			continue
		}
		for _, name := range names {
			o := byName[name]
			if o == nil {
				o = &origin{name: name, under: path}
			}
			o.real, o.away = realPath(name), false
			add(o)
		}
	}
	return found, faults
}

// expand is the file itself, or the files of a directory by name.
func expand(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err // troubleOf puts it into words
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err // troubleOf puts it into words
	}
	var names []string
	for _, e := range entries {
		name := filepath.Join(path, e.Name())
		if isSource(e.Name()) && !isDirectory(name, e) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// isSource says whether a file in a directory is read. Hidden ones are not:
// editors put their copies there, and the kubelet its ..data.
func isSource(name string) bool {
	if strings.HasPrefix(name, ".") {
		return false
	}
	switch strings.ToLower(filepath.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// isDirectory says whether an entry is a directory or leads to one. Directories
// in a directory are not read.
func isDirectory(name string, e fs.DirEntry) bool {
	if e.Type()&fs.ModeSymlink == 0 {
		return e.IsDir()
	}
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// realPath is the absolute path without symbolic links, as far as there is one.
func realPath(name string) string {
	if absolute, err := filepath.Abs(name); err == nil {
		name = absolute
	}
	if resolved, err := filepath.EvalSymlinks(name); err == nil {
		return resolved
	}
	return name
}
