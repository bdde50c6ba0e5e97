//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/userspace-proxy/userspace-proxy/bench/bed"
	"github.com/userspace-proxy/userspace-proxy/bench/report"
)

// descriptorLimit is what each process may open. The proxies are to hold 9,500
// connections with it.
const descriptorLimit = 20_000

func main() {
	if len(os.Args) == 2 && (os.Args[1] == loadWord || os.Args[1] == serveWord) {
		be := beLoad
		if os.Args[1] == serveWord {
			be = beServer
		}
		if err := be(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	// A second signal does not hurry it: timeout(1), for one, sends two.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = run(ctx, o, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	rounds   int
	duration time.Duration
	binary   string
	document string
	syscalls bool
	rows     []row
	paths    []*path
	partial  bool // not all rows or paths
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.rounds, "rounds", 5, "measure each path this often; medians are printed")
	flags.DurationVar(&o.duration, "duration", 2*time.Second, "let each measurement take this long")
	flags.StringVar(&o.binary, "binary", "bin/userspace-proxy", "measure this userspace-proxy")
	flags.StringVar(&o.document, "doc", "", "write what was measured into this file too, between its markers (when everything was measured)")
	flags.BoolVar(&o.syscalls, "syscalls", false, "count the proxies' system calls too, once for each row, with perf (Debian's linux-perf)")
	only := flags.String("only", "", "comma-separated `rows` to measure, or how their names begin: "+strings.Join(keys(allRows()), ", "))
	through := flags.String("paths", "", "comma-separated `paths` to measure: "+strings.Join(pathKeys(allPaths("")), ", "))
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.rounds < 1 || o.duration <= 0 {
		return o, errors.New("-rounds and -duration must be above 0")
	}
	o.partial = *only != "" || *through != ""
	var err error
	if o.rows, err = choose("-only", *only, allRows(), func(r row, name string) bool { return strings.HasPrefix(r.key, name) }); err != nil {
		return o, err
	}
	o.paths, err = choose("-paths", *through, allPaths(o.binary), func(p *path, name string) bool { return p.key == name })
	return o, err
}

// choose is those of all that one of the names in a list matches; all for "".
func choose[T any](flagName, list string, all []T, matches func(T, string) bool) ([]T, error) {
	if list == "" {
		return all, nil
	}
	names := strings.Split(list, ",")
	used := make(map[string]bool)
	var chosen []T
	for _, item := range all {
		for _, name := range names {
			if name != "" && matches(item, name) {
				used[name] = true
				chosen = append(chosen, item)
				break
			}
		}
	}
	for _, name := range names {
		if !used[name] {
			return nil, fmt.Errorf("%s: there is no %q, or it is named twice", flagName, name)
		}
	}
	return chosen, nil
}

func keys(rows []row) []string {
	var all []string
	for i := range rows {
		all = append(all, rows[i].key)
	}
	return all
}

func pathKeys(paths []*path) []string {
	var all []string
	for _, p := range paths {
		all = append(all, p.key)
	}
	return all
}

// run measures everything and writes it out.
func run(ctx context.Context, o options, stdout, stderr io.Writer) (err error) {
	if err := check(o); err != nil {
		return err
	}
	if err := limitDescriptors(stderr); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := writeConfigurations(dir); err != nil {
		return err
	}
	b, err := bed.Lay()
	if err != nil {
		return err
	}
	defer b.Close()

	began, before := time.Now(), lookQuiet()
	if before.busy() {
		fmt.Fprintf(stderr, "the load average is %s: others are at work on this machine, so the figures will say little\n", before.load)
	}
	s := session{options: o, bed: b, dir: dir, progress: stderr, calls: make(map[string]string)}
	if err := s.measureAll(ctx); err != nil {
		return err
	}
	lost, known := conntrackLosses(b.Node)
	r := s.report()
	r.Facts = append(machineFacts(o.binary), runFacts(o, began, before, lookQuiet(), lost, known)...)
	r.Facts = append(r.Facts, s.failures...)
	text := r.Markdown()
	fmt.Fprintf(stdout, "\n%s", text)
	if missed := r.Missed(); missed > 0 {
		fmt.Fprintf(stdout, "\n%d targets are missed.\n", missed)
	}
	return o.write(text, stderr)
}

// check says what is missing.
func check(o options) error {
	if os.Geteuid() != 0 {
		return errors.New("it lays out network namespaces and needs root")
	}
	programs := []string{"nft", o.binary}
	if o.syscalls {
		programs = append(programs, "perf")
	}
	for _, p := range o.paths {
		if p.key == haproxyKey || p.key == nginxKey {
			programs = append(programs, p.key)
		}
	}
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w (on Debian, make bench builds and installs what is missing; perf is in linux-perf)", err)
		}
	}
	return nil
}

// limitDescriptors gives this process, and those that it starts, the limit that
// the proxies are measured with.
func limitDescriptors(stderr io.Writer) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("reading the limit of descriptors: %w", err)
	}
	if limit.Max < descriptorLimit {
		fmt.Fprintf(stderr, "the limit of descriptors is %d and not %d: fewer idle connections can be held\n", limit.Max, descriptorLimit)
	}
	limit.Max = min(limit.Max, descriptorLimit)
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("setting the limit of descriptors: %w", err)
	}
	return nil
}

// write puts the text between the document's markers.
func (o options) write(text string, stderr io.Writer) error {
	if o.document == "" {
		return nil
	}
	if o.partial {
		fmt.Fprintf(stderr, "%s stays as it is: not everything was measured\n", o.document)
		return nil
	}
	old, err := os.ReadFile(o.document)
	if err != nil {
		return err
	}
	document, err := report.Splice(string(old), text)
	if err != nil {
		return fmt.Errorf("%s: %w", o.document, err)
	}
	// Renamed into place: a signal leaves one or the other.
	file, err := os.CreateTemp(filepath.Dir(o.document), ".bench-*")
	if err != nil {
		return err
	}
	_, err = file.WriteString(document)
	err = errors.Join(err, file.Chmod(0o644), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), o.document)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	fmt.Fprintf(stderr, "%s is written\n", o.document)
	return nil
}
