package main

import (
	"slices"

	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"

	"github.com/userspace-proxy/userspace-proxy/config"
	"github.com/userspace-proxy/userspace-proxy/config/etcd"
	"github.com/userspace-proxy/userspace-proxy/config/file"
	"github.com/userspace-proxy/userspace-proxy/internal/node"
)

// The names of the sources.
const (
	sourceFile = "file"
	sourceEtcd = "etcd"
)

// origin is a place that Services may come from.
type origin struct {
	flag   string // the flag that asks for it
	wanted bool
	open   func(node.Facts, logrus.FieldLogger) (config.Source, error)
}

// origins are all that the flags can ask for. Their order is that of
// precedence where the command line has none.
func (m *Main) origins(o *options) []origin {
	return []origin{
		{flag: "file", wanted: len(o.files) > 0, open: func(facts node.Facts, log logrus.FieldLogger) (config.Source, error) {
			return file.New(sourceFile, file.Options{
				Paths: o.files, Stdin: m.Stdin, NodeAddr: firstOf(facts.Primary), Log: log.WithField("source", sourceFile),
			})
		}},
		{flag: "etcd-servers", wanted: len(o.etcd.Servers) > 0, open: func(_ node.Facts, log logrus.FieldLogger) (config.Source, error) {
			options := o.etcd
			options.Log = log.WithField("source", sourceEtcd)
			return etcd.New(sourceEtcd, options)
		}},
	}
}

// sources opens what the flags ask for, in the order of the command line: of
// two Services with one name the first source's is served. What is wrong is
// wrong with the flags.
func (m *Main) sources(o *options, facts node.Facts, log logrus.FieldLogger) ([]config.Source, error) {
	all := m.origins(o)
	place := func(at origin) int { // those that no flag asks for come last
		if i := slices.Index(o.given, at.flag); i >= 0 {
			return i
		}
		return len(o.given)
	}
	slices.SortStableFunc(all, func(a, b origin) int { return place(a) - place(b) })

	var sources []config.Source
	for _, from := range all {
		if !from.wanted {
			continue
		}
		source, err := from.open(facts, log)
		if err != nil {
			return nil, usage(err)
		}
		sources = append(sources, source)
	}
	return sources, nil
}

// givenFlags are the names of the flags that were given, each where it was given
// first.
func givenFlags(flags *pflag.FlagSet) []string {
	sorted := flags.SortFlags
	defer func() { flags.SortFlags = sorted }()
	flags.SortFlags = false
	var names []string
	flags.Visit(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}
