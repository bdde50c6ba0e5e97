//go:build linux && !portable

package nftables

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"sigs.k8s.io/knftables"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Probe tries whether our rules work on this machine, in each family that
// the configuration listens in: it really makes a table, under a name of its
// own and without portals, and removes it. The error says why no family works;
// a report with one family and the reason for the other is not an error.
func Probe(ctx context.Context, c Config) (Report, error) {
	c = c.Defaults()
	// Two processes may probe at once.
	c.Table = fmt.Sprintf("%s-probe-%d", TableName, os.Getpid())
	if err := c.Validate(); err != nil {
		return Report{}, fmt.Errorf("nftables configuration: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	version, err := nft(ctx, "--version")
	if err != nil {
		return Report{}, fmt.Errorf("probing nftables: %w", err)
	}
	tool, err := knftables.New("", "")
	if err != nil {
		return Report{}, fmt.Errorf("probing nftables: %w", explainFirst(err))
	}
	report := families(ctx, c, tool)
	line, _, _ := strings.Cut(string(version), "\n")
	report.Version = strings.TrimSpace(line)
	if len(report.Families) == 0 {
		return report, errors.Join(report.Missing[service.IPv4], report.Missing[service.IPv6])
	}
	return report, nil
}

// families tries each family by itself: a kernel may have the rules of one only.
func families(ctx context.Context, c Config, tool knftables.Interface) Report {
	report := Report{Missing: make(map[service.Family]error)}
	for _, f := range service.Families() {
		listen, served := c.Listen[f]
		if !served {
			continue
		}
		one := c
		one.Listen = map[service.Family]netip.Addr{f: listen}
		err := try(ctx, one, tool)
		if err != nil && one.Replies != 0 {
			if one.Replies = 0; try(ctx, one, tool) == nil {
				err = fmt.Errorf("%w: %w", ErrNoSockets, err)
			}
		}
		if err != nil {
			report.Missing[f] = fmt.Errorf("probing nftables for %s: %w", f, err)
			continue
		}
		report.Families = append(report.Families, f)
	}
	return report
}

// try makes one family's table and removes it.
func try(ctx context.Context, c Config, tool knftables.Interface) error {
	tx := tool.NewTransaction()
	fill(tx, c.replace(nil))
	if err := tool.Run(ctx, tx); err != nil {
		return explainWithin(ctx, err)
	}
	tx = tool.NewTransaction()
	for f := range c.Listen {
		fill(tx, []command{{verb: remove, family: f, table: c.Table}})
	}
	if err := tool.Run(ctx, tx); err != nil {
		return fmt.Errorf("removing the probe's table: %w", explainWithin(ctx, err))
	}
	return nil
}
