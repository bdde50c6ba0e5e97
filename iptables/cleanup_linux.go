//go:build linux && !portable

package iptables

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/userspace-proxy/userspace-proxy/internal/nfgen"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// Cleanup removes the chains that any version of this package may have made,
// with either kind of commands and in both families, the jumps to them, and
// nothing else. Where there are none it does nothing.
//
// Without an iptables command it returns ErrNoIPTables: rules in the kernel
// outlive the command that made them, and nobody can tell whether there are
// some.
func Cleanup(ctx context.Context) error {
	found := errors.New("none found")
	err := sweep(ctx, Config{}.Defaults(), func(*commands) bool { found = nil; return false })
	if err == nil && found != nil {
		err = fmt.Errorf("iptables %w", ErrNoIPTables)
	}
	if err != nil {
		return fmt.Errorf("removing iptables rules: %w", err)
	}
	return nil
}

// sweep removes our rules wherever some may be, but for what is kept.
func sweep(ctx context.Context, c Config, keep func(*commands) bool) error {
	var errs []error
	for _, f := range service.Families() {
		for _, legacy := range []bool{false, true} {
			cmds, err := anyOf(ctx, c, f, legacy)
			if cmds != nil && !keep(cmds) {
				err = cmds.clean(ctx)
			}
			if err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// anyOf finds commands that change ip_tables, or nf_tables, by whatever name;
// nil where there are none.
func anyOf(ctx context.Context, c Config, f service.Family, legacy bool) (*commands, error) {
	kinds := []Kind{NFT, System}
	if legacy {
		kinds = []Kind{Legacy, System}
	}
	for _, k := range kinds {
		cmds, err := find(ctx, c, k, f)
		if err != nil && !errors.Is(err, ErrNoIPTables) {
			return nil, err
		}
		if err == nil && cmds.legacy() == legacy {
			return cmds, nil
		}
	}
	return nil, nil
}

// clean removes our rules in the tables that exist.
func (c *commands) clean(ctx context.Context) error {
	found := make(map[string]listing)
	if err := c.saveOthers(ctx, found); err != nil {
		return err
	}
	if in := remove(found); in != "" {
		return c.restore(ctx, in)
	}
	return nil
}

// saveOthers lists the tables that exist and in which some version may have made
// rules, beside those that are listed.
func (c *commands) saveOthers(ctx context.Context, listed map[string]listing) error {
	for _, table := range tables() {
		if _, is := listed[table]; is {
			continue
		}
		if exists, err := c.exists(table); err != nil || !exists {
			if err != nil {
				return err
			}
			continue
		}
		l, err := c.save(ctx, table)
		if err != nil {
			return err
		}
		listed[table] = l
	}
	return nil
}

// exists says whether there may be a table. To list one with iptables-legacy
// makes it, and its hooks then cost every packet something.
func (c *commands) exists(table string) (bool, error) {
	if !c.legacy() {
		_, err := nfgen.Read()
		return !nfgen.NoTables(err), nil
	}
	file := "/proc/thread-self/net/ip_tables_names"
	if c.family == service.IPv6 {
		file = "/proc/thread-self/net/ip6_tables_names"
	}
	names, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // the kernel has no such tables
	}
	if err != nil {
		return false, fmt.Errorf("finding out which tables there are: %w", c.explain(err))
	}
	return slices.Contains(strings.Fields(string(names)), table), nil
}
