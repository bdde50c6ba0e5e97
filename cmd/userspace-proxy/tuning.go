package main

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"

	"github.com/userspace-proxy/userspace-proxy/internal/tuning"
)

// tuningOptions are kube-proxy's flags for settings of the node. Their defaults
// are for nodes of clusters: where no API server is followed only those count
// that were given.
type tuningOptions struct {
	oomScoreAdj                                  int32
	maxPerCore, min                              int32
	tcpEstablished, tcpCloseWait, udp, udpStream time.Duration
	tcpBeLiberal                                 bool

	asked func(flag string) bool // whether a flag, or the configuration file, has said it
}

func (o *tuningOptions) addFlags(fs *pflag.FlagSet) {
	const node = "; the default holds where an API server is followed"
	fs.Int32Var(&o.oomScoreAdj, "oom-score-adj", -999, "the `score`, -1000 to 1000, by which the kernel chooses this process to end when memory runs out"+node)
	fs.Int32Var(&o.maxPerCore, "conntrack-max-per-core", 32*1024, "have the kernel track this `number` of connections for each core; 0 leaves it as it is"+node)
	fs.Int32Var(&o.min, "conntrack-min", 128*1024, "and this `number` at least"+node)
	fs.DurationVar(&o.tcpEstablished, "conntrack-tcp-timeout-established", 24*time.Hour, "have the kernel forget a connection without traffic after this time; 0 leaves it as it is"+node)
	fs.DurationVar(&o.tcpCloseWait, "conntrack-tcp-timeout-close-wait", time.Hour, "have the kernel forget a connection without traffic after this time once one side has closed; 0 leaves it as it is"+node)
	fs.BoolVar(&o.tcpBeLiberal, "conntrack-tcp-be-liberal", false, "have the kernel take packets that are out of the window as part of their connection")
	fs.DurationVar(&o.udp, "conntrack-udp-timeout", 0, "have the kernel forget datagrams without a reply after this time; 0 leaves it as it is")
	fs.DurationVar(&o.udpStream, "conntrack-udp-timeout-stream", 0, "have the kernel forget datagrams that have had a reply after this time; 0 leaves it as it is")
}

func (o *tuningOptions) check(c *checks) {
	if o.oomScoreAdj < -1000 || o.oomScoreAdj > 1000 {
		c.check("--oom-score-adj", fmt.Errorf("must be from -1000 to 1000, got %d", o.oomScoreAdj))
	}
	for flag, got := range map[string]int32{"--conntrack-max-per-core": o.maxPerCore, "--conntrack-min": o.min} {
		if got < 0 {
			c.check(flag, fmt.Errorf("must not be below 0, got %d", got))
		}
	}
	for flag, got := range map[string]time.Duration{
		"--conntrack-tcp-timeout-established": o.tcpEstablished,
		"--conntrack-tcp-timeout-close-wait":  o.tcpCloseWait,
		"--conntrack-udp-timeout":             o.udp,
		"--conntrack-udp-timeout-stream":      o.udpStream,
	} {
		if got < 0 {
			c.check(flag, fmt.Errorf("must not be below 0, got %s", got))
		}
	}
}

// settings are what is to be set. On the node of a cluster that is everything.
func (o *tuningOptions) settings(cluster bool) tuning.Settings {
	asked := func(flag string) bool { return cluster || o.asked(flag) }
	s := tuning.Settings{TCPBeLiberal: o.tcpBeLiberal, UDP: o.udp, UDPStream: o.udpStream}
	if asked("oom-score-adj") {
		score := int(o.oomScoreAdj)
		s.OOMScoreAdj = &score
	}
	if asked("conntrack-max-per-core") || asked("conntrack-min") {
		s.MaxPerCore, s.Min = int(o.maxPerCore), int(o.min)
	}
	if asked("conntrack-tcp-timeout-established") {
		s.TCPEstablished = o.tcpEstablished
	}
	if asked("conntrack-tcp-timeout-close-wait") {
		s.TCPCloseWait = o.tcpCloseWait
	}
	return s
}

// tune sets them on this machine. Elsewhere than on Linux there is nothing to set.
func (o *tuningOptions) tune(cluster bool, log logrus.FieldLogger) []tuning.SettingError {
	if runtime.GOOS != "linux" {
		return nil
	}
	return o.settings(cluster).Apply("/", runtime.NumCPU(), log)
}

// initOnly does what --init-only asks for: what the proxy itself then need not have
// the right to do. Its own score is no part of that.
func (o *tuningOptions) initOnly(log logrus.FieldLogger) error {
	if runtime.GOOS != "linux" {
		return nil
	}
	s := o.settings(true)
	s.OOMScoreAdj = nil
	var err error
	for _, fault := range s.Apply("/", runtime.NumCPU(), log) {
		err = errors.Join(err, fault)
	}
	return err
}
