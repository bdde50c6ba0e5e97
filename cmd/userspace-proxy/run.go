package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/userspace-proxy/userspace-proxy/config"
)

func (m *Main) newRun() *cobra.Command {
	o := new(options)
	c := &cobra.Command{
		Use:   "run [flags]",
		Short: "Serve Services until SIGINT or SIGTERM (also without a command)",
		Long: `Serves Services until SIGINT or SIGTERM, and takes changes to them while
it runs. They come from files, a Kubernetes API server, an etcd, or several of
these. With nftables or iptables it needs root or CAP_NET_ADMIN; rules and
listening addresses stay when it ends, for the next run to take over, until
"userspace-proxy cleanup" removes them.`,
		Example: `  userspace-proxy run --file services.yaml
  userspace-proxy run --file /etc/services.d --nodeport-addresses 192.0.2.0/24
  userspace-proxy run --file - --redirect none < services.yaml
  userspace-proxy run --kubeconfig /etc/kubernetes/proxy.conf`,
		DisableFlagsInUseLine: true,
		Args:                  noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.given = givenFlags(c.Flags())
			switch {
			case o.version:
				return m.newVersion().RunE(c, nil)
			case o.cleanup:
				return m.cleanup(c)
			}
			if err := o.completeRun(c.Flags()); err != nil {
				return err
			}
			log := m.newLog(o)
			logStart(log, c.Flags())
			for _, warning := range slices.Concat(warnOfIgnored(o.given), o.config.warnings) {
				log.Warn(warning)
			}
			switch {
			case o.writeConfigTo != "":
				return o.writeConfig(log)
			case o.initOnly:
				return o.tuning.initOnly(log)
			}
			if m.LeadKlog != nil {
				if err := m.LeadKlog(log, o.klogVerbosity()); err != nil {
					return err
				}
			}
			s, err := m.newServer(c.Context(), o, log)
			if err != nil {
				return err
			}
			s.warnOfOldRules()
			return s.run(c.Context())
		},
	}
	o.addRunFlags(c.Flags())
	return c
}

// logStart says which program this is and what it was told: at info the flags
// that were given, at debug all.
func logStart(log logrus.FieldLogger, flags *pflag.FlagSet) {
	list := func(visit func(func(*pflag.Flag))) string {
		var all []string
		visit(func(f *pflag.Flag) {
			value := f.Value.String()
			if several, ok := f.Value.(pflag.SliceValue); ok {
				value = strings.Join(several.GetSlice(), ",")
			}
			all = append(all, "--"+f.Name+"="+value)
		})
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	log.Infof("%s %s %s", programName, version(), list(flags.Visit))
	log.Debugf("all flags: %s", list(flags.VisitAll))
}

// watchConfig ends when the configuration file has changed, and so has the
// program end, for its supervisor to start it again.
func (s *server) watchConfig(ctx context.Context) error {
	return s.options.config.watch(ctx, s.log, func() { s.stopping.Store(true) })
}

// run serves until ctx ends, then drains. It returns when everything has ended.
func (s *server) run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { s.stopping.Store(true) })()
	defer s.redirect.transparency.close()
	err := together(ctx, s.services.Run, s.translator.run, s.serve, s.watchConfig, s.watchNode, s.notify)
	if err == nil {
		s.log.Info("stopped")
	}
	var source *config.SourceError
	if errors.As(err, &source) {
		return usage(err)
	}
	return err
}
