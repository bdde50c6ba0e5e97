//go:build linux && !portable

package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	goiptables "github.com/coreos/go-iptables/iptables"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// commands are the iptables commands of one kind for one family.
type commands struct {
	*goiptables.IPTables // one rule, or one chain, at a time

	family   service.Family
	name     string   // "ip6tables-legacy"
	version  string   // as the command prints it
	tables   []string // in which there are rules
	lockWait time.Duration
	timeout  time.Duration
}

// find finds the commands of a kind and asks for their version.
func find(ctx context.Context, c Config, k Kind, f service.Family) (*commands, error) {
	cmds := &commands{family: f, name: k.Command(f), tables: c.tables(), lockWait: c.LockWait, timeout: c.Timeout}
	for _, name := range []string{cmds.name, cmds.name + "-restore", cmds.name + "-save"} {
		if _, err := exec.LookPath(name); err != nil {
			return nil, fmt.Errorf("%s %w", name, ErrNoIPTables)
		}
	}
	version, err := cmds.run(ctx, "", cmds.name, "--version")
	if err != nil {
		return nil, err
	}
	cmds.version = strings.TrimSpace(string(version))
	proto := goiptables.ProtocolIPv4
	if f == service.IPv6 {
		proto = goiptables.ProtocolIPv6
	}
	// Without a timeout the library waits for the lock for ever.
	cmds.IPTables, err = goiptables.New(goiptables.IPFamily(proto), goiptables.Path(cmds.name),
		goiptables.Timeout(int(c.LockWait/time.Second)))
	if err != nil {
		return nil, cmds.explain(err)
	}
	return cmds, nil
}

// recent says whether the commands are recent enough.
func (c *commands) recent() error {
	version := func() []int { a, b, c := c.GetIptablesVersion(); return []int{a, b, c} }()
	if slices.Compare(version, []int{1, 6, 2}) < 0 {
		return fmt.Errorf("%s is too old: from 1.6.2 on (2018) iptables-restore can be told how long to wait for the xtables lock; upgrade iptables", c.version)
	}
	return nil
}

// legacy says whether the commands change ip_tables, and not nf_tables.
func (c *commands) legacy() bool { return !strings.Contains(c.version, "nf_tables") }

// restore gives an input to iptables-restore, which leaves alone what the
// input does not name.
func (c *commands) restore(ctx context.Context, input string) error {
	// iptables-nft takes the option and needs no lock.
	_, err := c.run(ctx, input, c.name+"-restore", "--noflush", "--wait="+strconv.Itoa(int(c.lockWait/time.Second)))
	return err
}

// save lists one table. With iptables-legacy that makes the table where there
// is none yet.
func (c *commands) save(ctx context.Context, table string, more ...string) (listing, error) {
	out, err := c.run(ctx, "", c.name+"-save", append([]string{"-t", table}, more...)...)
	if err != nil {
		return listing{}, err
	}
	l, err := parse(string(out))
	if err != nil {
		return listing{}, fmt.Errorf("reading what %s-save printed: %w", c.name, err)
	}
	return l, nil
}

// saveAll lists the tables that have rules of ours.
func (c *commands) saveAll(ctx context.Context, more ...string) (map[string]listing, error) {
	found := make(map[string]listing)
	for _, table := range c.tables {
		l, err := c.save(ctx, table, more...)
		if err != nil {
			return nil, err
		}
		found[table] = l
	}
	return found, nil
}

// run runs a command to its end and returns what it printed.
func (c *commands) run(ctx context.Context, stdin, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	switch {
	case err == nil:
		return stdout.Bytes(), nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s was ended before it was done: %w", name, ctx.Err())
	case stderr.Len() > 0:
		err = fmt.Errorf("%w: %s", err, stderr.String())
	}
	return nil, fmt.Errorf("%s: %w", name, c.explain(err))
}

// explain says what to do about an error of a command.
func (c *commands) explain(err error) error {
	text := err.Error()
	has := func(words string) bool { return strings.Contains(text, words) }
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return ErrNoIPTables
	case has("xtables lock"):
		return fmt.Errorf("%w; waited %s for it", ErrLocked, c.lockWait)
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES),
		has("Operation not permitted"), has("Permission denied"):
		return ErrNoRight
	}
	return errors.New(firstLines(text))
}

// firstLines keeps what a command says first: of thousands of rules it may
// complain about each.
func firstLines(text string) string {
	lines := strings.SplitN(strings.TrimSpace(text), "\n", 4)
	if len(lines) == 4 {
		lines[3] = "…"
	}
	return strings.Join(lines, "\n")
}
