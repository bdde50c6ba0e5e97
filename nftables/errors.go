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

	// ErrNoTables says that the kernel has no nf_tables, so that there can be
	// no rules either.
	ErrNoTables = errors.New("this kernel has no nf_tables: load or build the module, or use --redirect=none")

	// ErrNoSockets says that the kernel's rules cannot ask for sockets, so that
	// Config.Replies cannot be.
	ErrNoSockets = errors.New("this kernel's nf_tables cannot tell packets for transparent sockets: load the module nft_socket (modprobe nft_socket; CONFIG_NFT_SOCKET), or do without --transparent")

	// ErrNoBridges says that the kernel has no rules for bridges.
	ErrNoBridges = errors.New("this kernel has no nf_tables for bridges (CONFIG_NF_TABLES_BRIDGE)")

	// ErrDamaged says that our tables in the kernel are not as they were
	// applied: somebody else has changed them.
	ErrDamaged = errors.New("rules were changed by somebody else")
)
