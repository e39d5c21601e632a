package scheduler_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	cases = flag.Int("cases", 4000, "how many events the lives of TestLives have at least")
	seed  = flag.Uint64("seed", 1, "of the first life of TestLives; 0: by the clock")
)

// TestLives draws lives until so many events have been judged: each is a cluster of
// random nodes, jobs and allocations, and something that befalls it.
func TestLives(t *testing.T) {
	first := *seed
	if first == 0 {
		first = uint64(time.Now().UnixNano()) >> 10
	}
	t.Logf("seeds from %d", first)
	var lives, judged atomic.Int64
	var mu sync.Mutex
	all := tally{}
	var failed []uint64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for judged.Load() < int64(*cases) {
				s := first + uint64(lives.Add(1)) - 1
				happened, err := runTrace(generateTrace(s), nil)
				mu.Lock()
				now := judged.Add(int64(happened["events"]))
				all.add(happened)
				if every := int64(100_000); now/every > (now-int64(happened["events"]))/every {
					t.Logf("%d events in %d lives, %d failed", now, lives.Load(), len(failed))
				}
				if err != nil {
					failed = append(failed, s)
					t.Logf("seed %d: %v", s, err)
				}
				enough := len(failed) >= 5
				mu.Unlock()
				if enough {
					return
				}
			}
		})
	}
	workers.Wait()
	t.Logf("%d events in %d lives, the last of seed %d:%s", judged.Load(), lives.Load(), first+uint64(lives.Load())-1, all)
	for _, what := range all.rareOutcomes(int(judged.Load())) {
		t.Errorf("that proves little: %s", what)
	}
	slices.Sort(failed)
	for _, s := range failed {
		lines := shrinkTrace(generateTrace(s))
		var trace strings.Builder
		_, err := runTrace(lines, &trace)
		t.Errorf("seed %d: %v\n%s\n\n%s", s, err, strings.Join(lines, "\n"), lastTraceLines(trace.String()))
	}
}

// lastTraceLines cuts off all but the end of a trace.
func lastTraceLines(trace string) string {
	const most = 40
	lines := strings.Split(strings.TrimRight(trace, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

// TestLifeScenarios plays testdata/lives: what lives have found.
func TestLifeScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/lives/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no lives: %v", err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, life := range strings.Split(strings.TrimSpace(string(content)), "\n\n") {
			lines := strings.Split(life, "\n")
			t.Run(filepath.Base(file)+" "+strings.TrimPrefix(lines[0], "# "), func(t *testing.T) {
				if _, err := runTrace(lines, nil); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// shrinkTrace leaves out lines, and words of lines, for as long as the life fails.
func shrinkTrace(lines []string) []string {
	fails := func(l []string) bool {
		_, err := runTrace(l, nil)
		return err != nil && !errors.Is(err, errUnknownLine)
	}
	for again := true; again; {
		again = false
		for i := len(lines) - 1; i >= 0; i-- {
			if shorter := slices.Delete(slices.Clone(lines), i, i+1); fails(shorter) {
				lines, again = shorter, true
			}
		}
		for i, line := range lines {
			words := strings.Fields(line)
			for w := len(words) - 1; w >= 2; w-- {
				less := slices.Clone(lines)
				less[i] = strings.Join(slices.Delete(slices.Clone(words), w, w+1), " ")
				if fails(less) {
					words, lines, again = strings.Fields(less[i]), less, true
				}
			}
		}
	}
	return lines
}
