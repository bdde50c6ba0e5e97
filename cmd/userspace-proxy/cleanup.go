package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/userspace-proxy/userspace-proxy/internal/listenaddr"
	"github.com/userspace-proxy/userspace-proxy/nftables"
)

var errCleanupRight = errors.New("no right to look for rules and addresses and to remove them: needs root or CAP_NET_ADMIN")

func (m *Main) newCleanup() *cobra.Command {
	return &cobra.Command{
		Use:   "cleanup",
		Short: "Remove every rule and address that a run has left",
		Long: `Removes the rules and listening addresses that any version of userspace-proxy
may have left on this machine, and nothing else. Connections that were led by
the rules end. It may run as often as you like; it needs root or CAP_NET_ADMIN.`,
		Example:               `  userspace-proxy cleanup`,
		DisableFlagsInUseLine: true,
		Args:                  noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			// Both are tried: what one of them cannot do keeps the other from nothing.
			err := nftables.Cleanup(c.Context())
			if errors.Is(err, nftables.ErrNoNFT) {
				err = nil
				c.PrintErrln("nft is not installed: rules that a run left while it was are not looked for")
			}
			err = errors.Join(err, listenaddr.Remove(listenaddr.Default()))
			if errors.Is(err, nftables.ErrNoRight) || errors.Is(err, listenaddr.ErrNoRight) {
				return errCleanupRight // theirs advise to run without rules
			}
			if err != nil {
				return err
			}
			c.Println("no rules and no addresses of userspace-proxy are left")
			return nil
		},
	}
}
