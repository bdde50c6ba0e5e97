package view

import (
	"fmt"
	"strconv"
	"time"

	"github.com/userspace-proxy/userspace-proxy/proxy"
)

// count is a number of things in words.
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// bytes are a number of them in three digits, in powers of 1000: "1.2MB".
func bytes[N int64 | uint64](n N) string {
	if n < 1000 {
		return strconv.FormatInt(int64(n), 10) + "B"
	}
	f, unit := float64(n), 0
	for f >= 999.5 && unit < len("kMGTPE") {
		f, unit = f/1000, unit+1
	}
	if f < 9.95 {
		return fmt.Sprintf("%.1f%cB", f, "kMGTPE"[unit-1])
	}
	return fmt.Sprintf("%.0f%cB", f, "kMGTPE"[unit-1])
}

// span is a time in its two largest units, as kubectl has ages: "4m12s", "3d2h".
func span(of proxy.Span) string {
	s := int64(time.Duration(of).Round(time.Second) / time.Second)
	units := []struct {
		name string
		size int64
	}{{"d", 86400}, {"h", 3600}, {"m", 60}, {"s", 1}}
	for i, u := range units {
		if s < u.size || i == len(units)-1 {
			continue
		}
		text := fmt.Sprintf("%d%s", s/u.size, u.name)
		if rest := s % u.size / units[i+1].size; rest > 0 {
			text += fmt.Sprintf("%d%s", rest, units[i+1].name)
		}
		return text
	}
	return fmt.Sprintf("%ds", s)
}

// ago is a time as reports write it, in the words of span.
func ago(age string) string {
	if age == "" {
		return "never"
	}
	d, err := time.ParseDuration(age)
	if err != nil {
		return age
	}
	return span(proxy.Span(d)) + " ago"
}
