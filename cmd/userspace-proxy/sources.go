package main

import (
	"slices"

	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

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
	flags  []string // those that ask for it
	wanted bool
	open   func(node.Facts, logrus.FieldLogger) (config.Source, error)
}

// origins are all that the flags can ask for. Their order is that of
// precedence where the command line has none.
func (m *Main) origins(o *options, onNode func(*corev1.Node)) []origin {
	return []origin{
		{flags: []string{"file"}, wanted: len(o.files) > 0, open: func(facts node.Facts, log logrus.FieldLogger) (config.Source, error) {
			return file.New(sourceFile, file.Options{
				Paths: o.files, Stdin: m.Stdin, NodeAddr: firstOf(facts.Primary), Log: log.WithField("source", sourceFile),
			})
		}},
		{flags: []string{"etcd-servers"}, wanted: len(o.etcd.Servers) > 0, open: func(_ node.Facts, log logrus.FieldLogger) (config.Source, error) {
			options := o.etcd
			options.Log = log.WithField("source", sourceEtcd)
			return etcd.New(sourceEtcd, options)
		}},
		{flags: []string{"kubeconfig", "master"}, wanted: o.api.config != nil, open: func(facts node.Facts, log logrus.FieldLogger) (config.Source, error) {
			return o.api.open(facts, log, o.nodeLacks(), onNode)
		}},
	}
}

// sources opens what the flags ask for, in the order of the command line: of
// two Services with one name the first source's is served. What is wrong is
// wrong with the flags. onNode is told what a source knows of this machine's Node.
func (m *Main) sources(o *options, facts node.Facts, log logrus.FieldLogger, onNode func(*corev1.Node)) ([]config.Source, error) {
	all := m.origins(o, onNode)
	place := func(at origin) int { // those that no flag asks for come last
		asks := func(flag string) bool { return slices.Contains(at.flags, flag) }
		if i := slices.IndexFunc(o.given, asks); i >= 0 {
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
