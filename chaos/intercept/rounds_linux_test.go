package intercept_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	playFor  = flag.Duration("for", 0, "begin no round after this time, and draw the order of the rounds; 0: play them all")
	playSeed = flag.Uint64("seed", 1, "draws the order")
)

// sideBySide is how many rounds are played at the same time: they wait most of the time.
const sideBySide = 4

// drawOrder returns the rounds in an order that a seed draws. Each kind of write comes once before any comes twice.
func drawOrder(rounds []target, seed uint64) []target {
	rounds = slices.Clone(rounds)
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(rounds), func(i, k int) { rounds[i], rounds[k] = rounds[k], rounds[i] })
	times, rank := map[string]int{}, map[target]int{}
	for _, g := range rounds {
		rank[g] = times[g.kind]
		times[g.kind]++
	}
	slices.SortStableFunc(rounds, func(a, b target) int { return rank[a] - rank[b] })
	return rounds
}

// playRounds plays the rounds in their order, each as a subtest, and begins none after bound; 0: there is no bound. It
// returns those that were begun, and how many of these had no fault.
func playRounds(t *testing.T, c *center, rounds []target, bound time.Duration) (begun []target, missed int) {
	t.Helper()
	var workers sync.WaitGroup
	var next, without atomic.Int64
	began := time.Now()
	for range sideBySide {
		workers.Go(func() {
			for bound == 0 || time.Since(began) < bound {
				i := int(next.Add(1)) - 1
				if i >= len(rounds) {
					return
				}
				t.Run(rounds[i].String(), func(t *testing.T) {
					if _, struck := mustPlay(t, c, fmt.Sprintf("w%d", i), rounds[i]); !struck {
						without.Add(1)
						t.Logf("there was no such write this time")
					}
				})
			}
		})
	}
	workers.Wait()
	return rounds[:min(int(next.Load()), len(rounds))], int(without.Load())
}

// countRounds says how many rounds there are of how many kinds of write, and with which faults.
func countRounds(rounds []target) string {
	kinds, faults := map[string]bool{}, map[fault]int{}
	for _, g := range rounds {
		kinds[g.kind] = true
		faults[g.fault]++
	}
	return fmt.Sprintf("%d rounds of %d kinds of write: %d with a %s, %d with a %s, %d with %s", len(rounds), len(kinds),
		faults[full], full, faults[cut], cut, faults[torn], torn)
}

// TestDrawnRoundsHaveEveryKind draws orders of a plan: a part of it has as many kinds of write as it can, and the seed
// decides which ones.
func TestDrawnRoundsHaveEveryKind(t *testing.T) {
	all := plan(t, map[string]int{"agent write a": 40, "agent rename b": 1, "agent fsync c": 3, "child mkdir d": 2, "agent pwrite e": 900})
	firsts := map[target]bool{}
	for seed := range uint64(20) {
		drawn := drawOrder(all, seed)
		kinds := map[string]bool{}
		for _, g := range drawn[:5] {
			kinds[g.kind] = true
		}
		if len(kinds) != 5 {
			t.Errorf("seed %d: the first five rounds have %d of 5 kinds: %v", seed, len(kinds), drawn[:5])
		}
		left := slices.Clone(all)
		for _, g := range drawn {
			left = slices.DeleteFunc(left, func(o target) bool { return o == g })
		}
		if len(left) > 0 || len(drawn) != len(all) {
			t.Errorf("seed %d: %d rounds are drawn of %d, without %v", seed, len(drawn), len(all), left)
		}
		if !slices.Equal(drawn, drawOrder(all, seed)) {
			t.Errorf("seed %d draws two orders", seed)
		}
		firsts[drawn[0]] = true
	}
	if len(firsts) < 5 {
		t.Errorf("20 seeds begin with %d rounds", len(firsts))
	}
}
