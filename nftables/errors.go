package nftables

import "errors"

// Errors that a caller may tell from others.
var (
	// ErrUnsupported says that the program was built for a system without nftables.
	ErrUnsupported = errors.New("nftables is for Linux: use --redirect=none")

	// ErrNoNFT says that there is no nft command.
	ErrNoNFT = errors.New("nft not found in PATH: install nftables or use --redirect=none")

	// ErrNoRight says that the kernel lets this process change no rules.
	ErrNoRight = errors.New("no right to change rules: needs root or CAP_NET_ADMIN (ambient, for a user who is not root, so that nft inherits it), or use --redirect=none")
)
