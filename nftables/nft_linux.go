//go:build linux && !portable

package nftables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"sigs.k8s.io/knftables"
)

// foundTable is a table that exists.
type foundTable struct {
	family knftables.Family
	name   string
}

// listTables lists all tables, whoever's. (The library lists only what is
// inside one.)
func listTables(ctx context.Context) ([]foundTable, error) {
	out, err := nft(ctx, "list", "tables")
	if err != nil {
		if unknownToKernel(err) {
			err = ErrNoTables
		}
		return nil, fmt.Errorf("listing tables: %w", err)
	}
	var tables []foundTable
	for line := range strings.Lines(string(out)) { // "table ip userspace-proxy"
		if w := strings.Fields(line); len(w) >= 3 && w[0] == "table" {
			tables = append(tables, foundTable{knftables.Family(w[1]), w[2]})
		}
	}
	return tables, nil
}

// nft runs the command and returns what it printed.
func nft(ctx context.Context, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "nft", args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second // for what it may have started, and left with its output
	if err := cmd.Run(); err != nil {
		if stderr.Len() > 0 {
			err = fmt.Errorf("%w: %s", err, stderr.String())
		}
		return nil, explainWithin(ctx, err)
	}
	return stdout.Bytes(), nil
}

// explainWithin is explain for an error of a command that ctx may have ended.
func explainWithin(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("nft was ended before it was done: %w", ctx.Err())
	}
	return explain(err)
}

// explain says what to do about an error of nft.
func explain(err error) error {
	text := err.Error()
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return ErrNoNFT
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES), strings.Contains(text, "Operation not permitted"):
		return ErrNoRight
	case errors.Is(err, syscall.EPROTONOSUPPORT), strings.Contains(text, "Protocol not supported"):
		return ErrNoTables
	case strings.Contains(text, "not supported"):
		return fmt.Errorf("%s (the kernel lacks a part of nf_tables: load or build its modules, or use --redirect=none)", firstLines(text))
	}
	return errors.New(firstLines(text))
}

// explainFirst is explain for an error of the first question to the kernel.
func explainFirst(err error) error {
	if unknownToKernel(err) {
		return ErrNoTables
	}
	return explain(err)
}

// unknownToKernel says whether the first question to the kernel failed because
// it has no nf_tables. Nothing else is wrong with that question.
func unknownToKernel(err error) bool { return strings.Contains(err.Error(), "Invalid argument") }

// firstLines keeps what nft says first: of a script of thousands of lines it
// complains about each.
func firstLines(text string) string {
	lines := strings.SplitN(strings.TrimSpace(text), "\n", 4)
	if len(lines) == 4 {
		lines[3] = "…"
	}
	return strings.Join(lines, "\n")
}
