package iptables

import "errors"

// Errors that a caller may tell from others.
var (
	// ErrUnsupported says that the program was built for a system without iptables.
	ErrUnsupported = errors.New("iptables is for Linux: use --redirect=none")

	// ErrNoIPTables says that there is no iptables command, or not all of them.
	ErrNoIPTables = errors.New("not found in PATH: install iptables or use --redirect=none")

	// ErrNoRight says that the kernel lets this process change no rules.
	ErrNoRight = errors.New("no right to change rules: needs root or CAP_NET_ADMIN and CAP_NET_RAW (ambient, for a user who is not root, so that iptables inherits them), and for iptables-legacy the right to open its lock file, or use --redirect=none")

	// ErrLocked says that another program held the xtables lock all the time
	// that we waited for it. Nothing was changed.
	ErrLocked = errors.New("another program holds the xtables lock (`fuser -v /run/xtables.lock` tells which)")

	// ErrDamaged says that our rules in the kernel are not those that were
	// applied: somebody else has changed them.
	ErrDamaged = errors.New("rules were changed by somebody else")
)
