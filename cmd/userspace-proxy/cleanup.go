package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/userspace-proxy/userspace-proxy/internal/listenaddr"
	"github.com/userspace-proxy/userspace-proxy/internal/takeover"
	"github.com/userspace-proxy/userspace-proxy/internal/transparent"
	"github.com/userspace-proxy/userspace-proxy/iptables"
	"github.com/userspace-proxy/userspace-proxy/nftables"
)

var errCleanupRight = errors.New("no right to look for rules and addresses and to remove them: needs root or CAP_NET_ADMIN")

func (m *Main) newCleanup() *cobra.Command {
	return &cobra.Command{
		Use:   "cleanup",
		Short: "Remove every rule and address that a run has left",
		Long: `Removes what any version of userspace-proxy may have left on this machine:
rules, listening addresses, and the policy routing of --transparent; nothing
else. Connections that were led by the rules end. Where a userspace-proxy serves
this machine it removes nothing and says so. It may run as often as you like; it
needs root or CAP_NET_ADMIN.`,
		Example:               `  userspace-proxy cleanup`,
		DisableFlagsInUseLine: true,
		Args:                  noArgs,
		RunE:                  func(c *cobra.Command, _ []string) error { return m.cleanup(c) },
	}
}

// cleanup removes them and says so.
func (m *Main) cleanup(c *cobra.Command) error {
	m.takeSignals()
	hold, taken := takeover.Take(programName)
	if other := new(takeover.TakenError); errors.As(taken, &other) && !other.Stranger {
		return fmt.Errorf("another %s serves this node (%v), and would make anew what is removed: end it first", programName, takeover.Peer{Process: other.Process})
	}
	if taken == nil { // and none may begin meanwhile
		defer hold.Release()
	}
	// All are tried: what one of them cannot do keeps the others from nothing.
	var err error
	for _, k := range new(options).ruleKinds() {
		one := k.cleanup(c.Context())
		if errors.Is(one, k.absent) {
			c.PrintErrf("%s is not installed: rules that a run left while it was are not looked for\n", k.name)
			continue
		}
		err = errors.Join(err, one)
	}
	if one := nftables.RemoveBridges(c.Context()); !errors.Is(one, nftables.ErrNoNFT) {
		err = errors.Join(err, one)
	}
	err = errors.Join(err, listenaddr.Remove(listenaddr.Default()), transparent.Remove())
	for _, noRight := range []error{nftables.ErrNoRight, iptables.ErrNoRight, listenaddr.ErrNoRight, transparent.ErrNoRight} {
		if errors.Is(err, noRight) {
			return errCleanupRight // theirs advise to run without rules
		}
	}
	if err != nil {
		return err
	}
	c.Println("no rules and no addresses of userspace-proxy are left")
	return nil
}
