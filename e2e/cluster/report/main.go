package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// sources are where results are.
type sources struct {
	kubernetes string // its version
	reports    string // directories of JUnit reports, called as the proxy
	churn      string // files of JSON lines, called as the proxy
}

func main() {
	var from sources
	flag.StringVar(&from.reports, "reports", "", "the directory with a directory of JUnit reports for each proxy")
	flag.StringVar(&from.churn, "churn", "", "the directory with what churn.sh wrote for each proxy")
	flag.StringVar(&from.kubernetes, "kubernetes", "", "the version of Kubernetes")
	doc := flag.String("doc", "", "the Markdown file to write")
	flag.Parse()
	if err := run(from, *doc); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(from sources, doc string) error {
	specs, err := readSpecs(from.reports)
	if err != nil {
		return err
	}
	changes, err := readChanges(from.churn)
	if err != nil {
		return err
	}
	text := specs.document(strings.TrimPrefix(from.kubernetes, "v")) + changes.document()
	return os.WriteFile(doc, []byte(text), 0o644) //nolint:gosec // a document is for all
}

func readSpecs(reports string) (*results, error) {
	specs := newResults()
	dirs, err := os.ReadDir(reports)
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		if !isProxy(dir.Name()) {
			continue // somebody's try
		}
		first, err := filepath.Glob(filepath.Join(reports, dir.Name(), "junit*.xml"))
		if err != nil {
			return nil, err
		}
		again, err := filepath.Glob(filepath.Join(reports, dir.Name(), "again", "junit*.xml"))
		if err != nil {
			return nil, err
		}
		for _, file := range append(first, again...) {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			if err := specs.read(dir.Name(), text); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return specs, nil
}

// readChanges takes a directory that is not there for one without results.
func readChanges(dir string) (changes, error) {
	all := make(changes)
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, file := range files {
		proxy, ok := strings.CutSuffix(file.Name(), ".json")
		if !ok || !isProxy(proxy) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			return nil, err
		}
		if err := all.read(proxy, text); err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name(), err)
		}
	}
	return all, nil
}
