package reconcile_test

import (
	"fmt"
	"testing"

	"skerry/reconcile"
)

// BenchmarkDecide is a look at a job of 10,000 allocations: nothing to do, and
// all of them to be started anew.
func BenchmarkDecide(b *testing.B) {
	for _, change := range []string{"", "env=2"} {
		b.Run("change="+change, func(b *testing.B) {
			s := &script{}
			for _, line := range [][]string{{"case"}, {"job", "count=10000", "env=1"}, {"node", "n0", "ready"}, {"alloc", "a0..9999", "0", "n0", "running"}} {
				if err := s.executeCommand(line[0], line[1:], nil); err != nil {
					b.Fatal(err)
				}
			}
			if change != "" {
				if err := s.executeCommand("job", []string{change}, nil); err != nil {
					b.Fatal(err)
				}
			}
			in := s.cluster.decisionInput("e")
			for b.Loop() {
				out := reconcile.Decide(in)
				if len(out.Kept)+len(out.Place) != 10000 {
					b.Fatal(fmt.Sprint(out.Groups))
				}
			}
		})
	}
}
