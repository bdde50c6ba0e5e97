package tuning

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
)

// Settings are what is asked for. Zero values leave things as they are.
type Settings struct {
	OOMScoreAdj *int // of this process, -1000 to 1000

	MaxPerCore int // connections to track for each core; 0 leaves Min aside too
	Min        int // and this many at least

	TCPEstablished, TCPCloseWait, UDP, UDPStream time.Duration // after which an entry is forgotten
	TCPBeLiberal                                 bool          // take packets out of the window as part of their connection
}

// SettingError is a setting that cannot be made.
type SettingError struct {
	Flag string // that asks for it
	Err  error
}

// Error is what is wrong and what to do about it.
func (f SettingError) Error() string { return f.Flag + ": " + f.Err.Error() }

// setting is one number in one file.
type setting struct {
	flag  string
	path  string // below the root
	value int
	raise bool // only where it is lower
}

// The files.
const (
	oomScore  = "proc/self/oom_score_adj"
	netfilter = "proc/sys/net/netfilter/"
	maximum   = netfilter + "nf_conntrack_max"
	hashSize  = "sys/module/nf_conntrack/parameters/hashsize"
)

// settings are in the order in which they are made.
func (s Settings) settings(cores int) []setting {
	var all []setting
	if s.OOMScoreAdj != nil {
		all = append(all, setting{flag: "--oom-score-adj", path: oomScore, value: *s.OOMScoreAdj})
	}
	if s.MaxPerCore > 0 {
		const flag, perBucket = "--conntrack-max-per-core", 4 // as in kube-proxy: with more a look-up takes long
		most := max(s.MaxPerCore*cores, s.Min)
		all = append(all,
			setting{flag: flag, path: maximum, value: most, raise: true},
			setting{flag: flag, path: hashSize, value: most / perBucket, raise: true})
	}
	for _, t := range []struct {
		flag, name string
		after      time.Duration
	}{
		{"--conntrack-tcp-timeout-established", "nf_conntrack_tcp_timeout_established", s.TCPEstablished},
		{"--conntrack-tcp-timeout-close-wait", "nf_conntrack_tcp_timeout_close_wait", s.TCPCloseWait},
		{"--conntrack-udp-timeout", "nf_conntrack_udp_timeout", s.UDP},
		{"--conntrack-udp-timeout-stream", "nf_conntrack_udp_timeout_stream", s.UDPStream},
	} {
		if t.after > 0 {
			all = append(all, setting{flag: t.flag, path: netfilter + t.name, value: int(t.after / time.Second)})
		}
	}
	if s.TCPBeLiberal {
		all = append(all, setting{flag: "--conntrack-tcp-be-liberal", path: netfilter + "nf_conntrack_tcp_be_liberal", value: 1})
	}
	return all
}

// Apply makes the settings below a root, which is "/" but for tests, and tells
// the log of each that it changes and each that it cannot make.
func (s Settings) Apply(root string, cores int, log logrus.FieldLogger) []SettingError {
	var faults []SettingError
	for _, one := range s.settings(cores) {
		before, err := one.apply(root)
		switch {
		case errors.Is(err, os.ErrNotExist):
			log.Infof("%s: there is no /%s here, so nothing to set", one.flag, one.path)
		case err != nil:
			f := SettingError{one.flag, advise(one, err)}
			log.Warn(f.Error())
			faults = append(faults, f)
		case before != one.value:
			log.Infof("%s: /%s was %d and is %d", one.flag, one.path, before, one.value)
		}
	}
	return faults
}

// apply writes the number, unless it is there, and returns what was. For one
// that is high enough that is the number.
func (s setting) apply(root string) (before int, err error) {
	path := filepath.Join(root, s.path)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	if before, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		return 0, fmt.Errorf("/%s: %w", s.path, err)
	}
	if before == s.value || s.raise && before > s.value {
		return s.value, nil
	}
	return before, os.WriteFile(path, []byte(strconv.Itoa(s.value)), 0o644) //nolint:gosec // it is there, with a mode of its own
}

// advise says what to do about a setting that cannot be made.
func advise(s setting, err error) error {
	var at *os.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	err = fmt.Errorf("/%s cannot be set to %d: %w", s.path, s.value, err)
	const otherwise = "set it on the node, or say 0 here to leave it as it is"
	switch {
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w (the container sees it read-only: %s)", err, otherwise)
	case errors.Is(err, os.ErrPermission) && s.path == oomScore:
		return fmt.Errorf("%w (to lower it takes CAP_SYS_RESOURCE)", err)
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EOPNOTSUPP):
		return fmt.Errorf("%w (it takes root in the network namespace of the node: %s)", err, otherwise)
	}
	return err
}
