package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	reports := flag.String("reports", "", "the directory with a directory of JUnit reports for each proxy")
	kubernetes := flag.String("kubernetes", "", "the version of Kubernetes")
	doc := flag.String("doc", "", "the Markdown file to write")
	flag.Parse()
	if err := run(*reports, *kubernetes, *doc); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(reports, kubernetes, doc string) error {
	dirs, err := os.ReadDir(reports)
	if err != nil {
		return err
	}
	specs := make(results)
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(reports, dir.Name(), "junit*.xml"))
		if err != nil {
			return err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if err := specs.read(dir.Name(), text); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return os.WriteFile(doc, []byte(specs.document(strings.TrimPrefix(kubernetes, "v"))), 0o644) //nolint:gosec // a document is for all
}
