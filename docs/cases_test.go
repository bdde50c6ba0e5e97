package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// caseRow is a numbered row of cases.md: all before the tests, and these.
var (
	caseRow  = regexp.MustCompile(`(?m)^(\| (\d+) \| .* \| (.*) \|) .*\|$`)
	caseTest = regexp.MustCompile(`(?m)^func TestCase(\d+)_`)
)

// TestCases: every test with a case's number stands in cases.md, and every case
// there has tests, but for those that it says are not here yet.
func TestCases(t *testing.T) {
	t.Parallel()
	in := testsOfCases(t)
	text, err := os.ReadFile("cases.md")
	require.NoError(t, err)
	fixed := caseRow.ReplaceAllStringFunc(string(text), func(row string) string {
		parts := caseRow.FindStringSubmatch(row)
		head, number, here := parts[1], parts[2], parts[3]
		dirs := in[number]
		delete(in, number)
		require.Equal(t, strings.HasPrefix(here, "Not here yet"), len(dirs) == 0, "case %s: its row, and its tests in %v", number, dirs)
		for i, dir := range dirs {
			dirs[i] = fmt.Sprintf("[%s](../%s)", dir, dir)
		}
		return head + " " + strings.Join(append(dirs, ""), " ") + "|"
	})
	require.Empty(t, in, "tests of cases that cases.md does not have")
	if *update {
		require.NoError(t, os.WriteFile("cases.md", []byte(fixed), 0o600))
		return
	}
	require.Equal(t, fixed, string(text), "go test ./docs -update corrects the last column")
}

// testsOfCases are the directories with tests of each case, by its number.
func testsOfCases(t *testing.T) map[string][]string {
	t.Helper()
	in := make(map[string][]string)
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range caseTest.FindAllStringSubmatch(string(text), -1) {
			dir, number := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), "../")), found[1]
			if !slices.Contains(in[number], dir) {
				in[number] = append(in[number], dir)
			}
		}
		return err
	}))
	require.NotEmpty(t, in)
	return in
}
