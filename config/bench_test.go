package config

import (
	"fmt"
	"testing"
	"time"
)

const manyServices = 10_000

// manyStore has 10,000 Services with a slice each in the first of two sources.
func manyStore() (s *store, setServices, setSlices change) {
	s = deliveredStore("first", "second")
	var names, slices []string
	for i := range manyServices {
		names = append(names, fmt.Sprintf("default/s%05d@1", i))
		slices = append(slices, fmt.Sprintf("default/s%05d-x@1 of s%05d", i, i))
	}
	setServices, setSlices = services(SET, names...), endpointSlices(SET, slices...)
	s.apply(s.sources[0], setServices, time.Time{})
	s.apply(s.sources[0], setSlices, time.Time{})
	s.snapshot()
	return s, setServices, setSlices
}

// BenchmarkMerge10000 is what a change costs while 10,000 Services are known:
// from the update to the snapshot that a handler gets.
func BenchmarkMerge10000(b *testing.B) {
	b.Run("one Service", func(b *testing.B) {
		s, _, _ := manyStore()
		changes := []change{services(ADD, "default/s05000@2"), services(ADD, "default/s05000@3")}
		for i := 0; b.Loop(); i++ {
			s.apply(s.sources[0], changes[i%2], time.Time{})
			s.snapshot()
		}
	})
	b.Run("one slice", func(b *testing.B) {
		s, _, _ := manyStore()
		changes := []change{
			endpointSlices(ADD, "default/s05000-x@2 of s05000"),
			endpointSlices(ADD, "default/s05000-x@3 of s05000"),
		}
		for i := 0; b.Loop(); i++ {
			s.apply(s.sources[0], changes[i%2], time.Time{})
			s.snapshot()
		}
	})
	b.Run("nothing, said again whole", func(b *testing.B) {
		s, setServices, _ := manyStore()
		for b.Loop() {
			s.apply(s.sources[0], setServices, time.Time{})
			s.snapshot()
		}
	})
	b.Run("everything from nothing", func(b *testing.B) {
		s, setServices, setSlices := manyStore()
		for b.Loop() {
			s.apply(s.sources[0], services(SET), time.Time{})
			s.apply(s.sources[0], endpointSlices(SET), time.Time{})
			s.snapshot()
			s.apply(s.sources[0], setServices, time.Time{})
			s.apply(s.sources[0], setSlices, time.Time{})
			s.snapshot()
		}
	})
}
