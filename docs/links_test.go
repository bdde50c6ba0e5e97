// Package docs has no code. Its tests keep the documentation true.
package docs

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the lines that links to code should have")

var (
	// link is [text](target). Text that is code names what stands at the target's line.
	link         = regexp.MustCompile(`\[([^\]\n]+)\]\(([^)\s]+)\)`)
	heading      = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notInAnchors = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestLinks: every relative link leads to something, one to a heading of a page
// to a heading that is there, and one to a line of code to where the name in its
// text is declared.
func TestLinks(t *testing.T) {
	t.Parallel()
	for _, page := range pages(t) {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(page)
			require.NoError(t, err)
			var faults []string
			fixed := link.ReplaceAllStringFunc(string(text), func(s string) string {
				parts := link.FindStringSubmatch(s)
				target, err := check(page, parts[1], parts[2])
				if err != nil {
					faults = append(faults, fmt.Sprintf("%s: %v", s, err))
				}
				return "[" + parts[1] + "](" + target + ")"
			})
			if *update {
				require.NoError(t, os.WriteFile(page, []byte(fixed), 0o600))
				return
			}
			require.Empty(t, faults, "go test ./docs -update corrects lines")
		})
	}
}

func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if err == nil && strings.HasSuffix(path, ".md") {
			all = append(all, path)
		}
		return err
	}))
	require.NotEmpty(t, all)
	return all
}

// check says what is wrong with a link of a page, and what its target should be.
func check(page, text, target string) (string, error) {
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return target, nil
	}
	path, anchor, _ := strings.Cut(target, "#")
	to := page
	if path != "" {
		to = filepath.Join(filepath.Dir(page), path)
	}
	if info, err := os.Stat(to); err == nil && info.IsDir() {
		return target, nil
	}
	content, err := os.ReadFile(to)
	if err != nil {
		return target, fmt.Errorf("leads nowhere: %w", err)
	}
	if anchor == "" {
		return target, nil
	}
	line, err := strconv.Atoi(strings.TrimPrefix(anchor, "L"))
	if err != nil {
		if !slices.Contains(anchors(string(content)), anchor) {
			return target, fmt.Errorf("%s has no such heading", to)
		}
		return target, nil
	}
	want, err := declaration(string(content), strings.Trim(text, "`"))
	if err != nil {
		return target, err
	}
	if want != line {
		return fmt.Sprintf("%s#L%d", path, want), fmt.Errorf("it is at line %d", want)
	}
	return target, nil
}

// anchors are what links call the headings of a page.
func anchors(content string) []string {
	var all []string
	for _, found := range heading.FindAllStringSubmatch(content, -1) {
		all = append(all, strings.ReplaceAll(notInAnchors.ReplaceAllString(strings.ToLower(found[1]), ""), " ", "-"))
	}
	return all
}

// declaration is the line at which a Go file declares a name: "Type", "function"
// or "Type.method".
func declaration(content, name string) (int, error) {
	owner, method, isMethod := strings.Cut(strings.TrimSuffix(name, "()"), ".")
	pattern := `^(func|type|const|var)\s+` + regexp.QuoteMeta(owner) + `\b`
	if isMethod {
		pattern = `^func \(\w* ?\*?` + regexp.QuoteMeta(owner) + `\) ` + regexp.QuoteMeta(method) + `\(|^\t` + regexp.QuoteMeta(method) + `\(`
	}
	declared := regexp.MustCompile(pattern)
	for i, s := range strings.Split(content, "\n") {
		if declared.MatchString(s) {
			return i + 1, nil
		}
	}
	return 0, fmt.Errorf("%s is not declared there", name)
}
