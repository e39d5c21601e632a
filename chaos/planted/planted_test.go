//go:build planted

package planted_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/history"
	"skerry/chaos/schedule"
	"skerry/chaos/virtual"
	"skerry/planted"
)

const (
	// findLimit is how soon a bug has to be found, in real time.
	findLimit = time.Minute
	// playLimit bounds a run without a bug, which goes on to its end.
	playLimit = 3 * time.Minute
)

// What a child process is told: which scenario it shall play, with which seed in place
// of its own, and where.
const (
	playScenario = "PLANTED_SCENARIO"
	playSeed     = "PLANTED_SEED"
	playDir      = "PLANTED_DIR"
)

// verdict is what a child process prints.
type verdict struct {
	Outcome history.Outcome
	Reasons []string
	Found   []check.Violation // with a bug that is named: up to its name
	Reached uint64            // how often the bug had its way
}

func (v verdict) String() string {
	var b strings.Builder
	for i, f := range v.Found {
		if i == 5 {
			b.WriteString("…\n")
			break
		}
		b.WriteString(f.String() + "\n")
	}
	return b.String()
}

// hasViolationOf reports whether a violation is of the invariant.
func (v verdict) hasViolationOf(slug string) bool { return slices.Contains(v.brokenInvariants(), slug) }

// brokenInvariants are the invariants that were broken, each once, in the order of their names.
func (v verdict) brokenInvariants() []string {
	var out []string
	for _, f := range v.Found {
		out = append(out, f.Invariant.Slug())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// TestMain plays one scenario where this process is a child: a bug may end the
// process that it is planted in.
func TestMain(m *testing.M) {
	if path := os.Getenv(playScenario); path != "" {
		virtual.Main(func() error { return playAlone(path, os.Getenv(playDir)) })
	}
	os.Exit(m.Run())
}

// playAlone plays a scenario to its end, or until the planted bug is found and named.
func playAlone(path, dir string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	s, err := schedule.Parse(path, text)
	if err != nil {
		return err
	}
	if s.Seed, err = strconv.ParseUint(os.Getenv(playSeed), 10, 64); err != nil {
		return err
	}
	wanted := invariantOf(planted.Bug(os.Getenv(planted.Environment)))
	var mu sync.Mutex
	var found []check.Violation
	p := virtual.Play{Schedule: s, Name: path, Dir: dir, Strict: true, Found: func(v check.Violation) {
		mu.Lock()
		defer mu.Unlock()
		if found = append(found, v); v.Invariant.Slug() == wanted {
			printVerdict(verdict{Outcome: history.Violated, Found: found, Reached: planted.Reached()})
			os.Exit(0)
		}
	}}
	out, err := p.Run(context.Background(), func() time.Duration { return 0 })
	v := verdict{Outcome: out.Outcome, Reasons: out.Reasons, Found: out.Found, Reached: planted.Reached()}
	if err != nil {
		v.Reasons = append(v.Reasons, err.Error())
	}
	printVerdict(v)
	return nil
}

const verdictPrefix = "verdict: "

func printVerdict(v verdict) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString("\n" + verdictPrefix + string(b) + "\n")
}

func invariantOf(bug planted.Bug) string {
	for _, e := range planted.Catalogue() {
		if e.Bug == bug {
			return e.Invariant
		}
	}
	return ""
}

func TestPlantedBugsAreFound(t *testing.T) {
	all := planted.Catalogue()
	found := make([]finding, len(all))
	t.Cleanup(func() { t.Log("\n" + formatFindings(all, found)) })
	for i, e := range all {
		t.Run(string(e.Bug), func(t *testing.T) {
			t.Parallel()
			if v := mustPlay(t, scenarioPlay{scenarioOf: e.Bug, seed: 1}, playLimit); v.Outcome != history.Pass {
				t.Errorf("without the bug: %s %q\n%s", v.Outcome, v.Reasons, v)
			}
			found[i] = mustFind(t, e)
		})
	}
}

// finding is how a bug was found.
type finding struct {
	took   time.Duration // from the start of the first play to the name
	plays  int           // of its scenario, each with a seed of its own
	others []string      // invariants that were broken before the one that names it
}

// mustFind plays a bug's scenario until the bug is named: what happens in the same
// instant is decided by the scheduler, and a bug may be spared for once.
func mustFind(t *testing.T, e planted.Entry) finding {
	t.Helper()
	began := time.Now()
	for seed := 1; ; seed++ { // mustPlay ends it when the time is over
		v := mustPlay(t, scenarioPlay{scenarioOf: e.Bug, bug: e.Bug, seed: seed}, findLimit-time.Since(began))
		if !v.hasViolationOf(e.Invariant) {
			t.Logf("the bug's place was passed %d times, and nothing broke %s: %s %q\n%s", v.Reached, e.Invariant, v.Outcome, v.Reasons, v)
			continue
		}
		if v.Reached == 0 {
			t.Fatalf("%s is broken, though the bug's place was never passed\n%s", e.Invariant, v)
		}
		others := slices.DeleteFunc(v.brokenInvariants(), func(slug string) bool { return slug == e.Invariant })
		return finding{took: time.Since(began), plays: seed, others: others}
	}
}

// formatFindings lists how each bug that was looked for was found, as the documentation does.
func formatFindings(all []planted.Entry, found []finding) string {
	var b strings.Builder
	for i, e := range all {
		if f := found[i]; f.plays > 0 {
			fmt.Fprintf(&b, "| %s | %s | %.1f | %d | %s |\n", e.Bug, e.Invariant, f.took.Seconds(), f.plays, strings.Join(f.others, ", "))
		}
	}
	return "| bug | named by | seconds | plays | broken before |\n" + b.String()
}

// scenarioPlay is the scenario of a bug, with a bug in place or (none) without.
type scenarioPlay struct {
	scenarioOf, bug planted.Bug
	seed            int
}

// mustPlay plays a scenario in a process of its own.
func mustPlay(t *testing.T, p scenarioPlay, limit time.Duration) verdict {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	c := exec.CommandContext(ctx, os.Args[0])
	c.Env = append(os.Environ(), playScenario+"="+string(p.scenarioOf)+".txt", playSeed+"="+strconv.Itoa(p.seed),
		playDir+"="+t.TempDir(), planted.Environment+"="+string(p.bug))
	began := time.Now()
	out, err := c.CombinedOutput()
	_, text, ok := bytes.Cut(out, []byte(verdictPrefix))
	if !ok {
		t.Fatalf("play %s.txt with the bug %q: %v, after %s\n%s", p.scenarioOf, p.bug, err, time.Since(began).Round(time.Second), out)
	}
	var v verdict
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&v); err != nil {
		t.Fatalf("read the verdict: %v\n%s", err, out)
	}
	t.Logf("with the bug %q, seed %d: %s in %s", p.bug, p.seed, v.Outcome, time.Since(began).Round(time.Millisecond))
	return v
}
