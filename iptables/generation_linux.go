//go:build linux && !portable

package iptables

import (
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/userspace-proxy/userspace-proxy/internal/nfgen"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// generation tells states of the kernel's rules from each other. Its zero
// value is no state.
type generation struct {
	number uint32 // of the change of nf_tables that led to it
	tables string // what ip_tables tells of the state
}

// after is the generation that some steps lead to if nobody else takes one
// meanwhile; the zero value where that cannot be foretold.
func (g generation) after(steps int) generation {
	return generation{number: nfgen.After(g.number, steps)}
}

// generation is that of the rules that these commands change. To ask for it
// costs some microseconds, however many rules there are.
func (c *commands) generation() (generation, error) {
	if !c.legacy() {
		number, err := nfgen.Read()
		return generation{number: number}, err
	}
	var all strings.Builder
	for _, table := range c.tables {
		info, err := tableInfo(c.family, table)
		if err != nil {
			return generation{}, err
		}
		all.WriteString(info)
	}
	return generation{tables: all.String()}, nil
}

// tableInfo is what IPT_SO_GET_INFO (linux/netfilter_ipv4/ip_tables.h) tells of
// a table: where its chains begin, how many rules it has and their size. That
// a rule is exchanged for another of its size does not show.
func tableInfo(f service.Family, table string) (string, error) {
	const getInfo = 64 // IPT_SO_GET_INFO and IP6T_SO_GET_INFO
	domain, level := unix.AF_INET, unix.IPPROTO_IP
	if f == service.IPv6 {
		domain, level = unix.AF_INET6, unix.IPPROTO_IPV6
	}
	fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return "", fmt.Errorf("opening a socket to ask for the table %s: %w", table, err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written to it
	var info struct {
		name                 [32]byte
		validHooks           uint32
		hookEntry, underflow [5]uint32
		rules, size          uint32
	}
	copy(info.name[:], table)
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), getInfo,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return "", fmt.Errorf("asking for the table %s: %w", table, errno)
	}
	return fmt.Sprint(info), nil
}
