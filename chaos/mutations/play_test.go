package mutations_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/history"
	"skerry/chaos/mutate"
	"skerry/chaos/schedule"
	"skerry/chaos/virtual"
)

const (
	// findLimit is how soon a mutation has to be found, in real time.
	findLimit = time.Minute
	// playLimit bounds a run without a mutation, which goes on to its end.
	playLimit = 3 * time.Minute
)

// Variables that tell a child process which scenario it plays, with which seed in place of the
// scenario's, in which folder, and at which violation it ends.
const (
	playScenario  = "MUTATIONS_SCENARIO"
	playSeed      = "MUTATIONS_SEED"
	playDir       = "MUTATIONS_DIR"
	playInvariant = "MUTATIONS_INVARIANT"
)

// verdict is what a child process prints.
type verdict struct {
	Outcome history.Outcome
	Reasons []string
	Found   []check.Violation // up to the one that was wanted
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

// brokenInvariants are the invariants that were broken, each once, in the order of their names.
func (v verdict) brokenInvariants() []string {
	var out []string
	for _, f := range v.Found {
		out = append(out, f.Invariant.Slug())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// TestMain plays one scenario where this process is a child. A child is built with a mutation,
// which may end the process.
func TestMain(m *testing.M) {
	if path := os.Getenv(playScenario); path != "" {
		virtual.Main(func() error { return playAlone(path, os.Getenv(playDir)) })
	}
	os.Exit(m.Run())
}

// playAlone plays a scenario to its end, or until the wanted invariant is broken.
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
	var mu sync.Mutex
	var found []check.Violation
	p := virtual.Play{Schedule: s, Name: path, Dir: dir, Strict: true, Found: func(v check.Violation) {
		mu.Lock()
		defer mu.Unlock()
		if found = append(found, v); v.Invariant.Slug() == os.Getenv(playInvariant) {
			printVerdict(verdict{Outcome: history.Violated, Found: found})
			os.Exit(0)
		}
	}}
	out, err := p.Run(context.Background())
	v := verdict{Outcome: out.Outcome, Reasons: out.Reasons, Found: out.Found}
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

// findMutation wants that the mutation breaks its invariant, that its scenario passes without
// it, and that each of its tests fails.
func findMutation(t *testing.T, m mutation, changed map[string][]byte) {
	folder := t.TempDir()
	absolute, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := mutate.WriteOverlay(folder, absolute, changed)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range m.KilledBy {
		requireFailure(t, overlay, test)
	}
	if m.Invariant == "" {
		return
	}
	if v := mustPlay(t, os.Args[0], m, 1, playLimit); v.Outcome != history.Pass {
		t.Errorf("without the mutation: %s %q\n%s", v.Outcome, v.Reasons, v)
	}
	program := filepath.Join(folder, "play")
	if out, err := exec.Command("go", "test", "-c", "-overlay", overlay, "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build the mutation: %v\n%s", err, out)
	}
	began := time.Now()
	for seed := 1; ; seed++ { // mustPlay ends it when the time is over
		v := mustPlay(t, program, m, seed, findLimit-time.Since(began))
		broken := v.brokenInvariants()
		if slices.Contains(broken, m.Invariant) {
			t.Logf("found: %s breaks %v within %.1f s, play %d", m.Name, broken, time.Since(began).Seconds(), seed)
			replayMutation(t, program, m, seed)
			return
		}
		// What happens in the same instant is decided by the scheduler: another seed may show it.
		t.Logf("nothing broke %s: %s %q\n%s", m.Invariant, v.Outcome, v.Reasons, v)
	}
}

// replayMutation plays a seed that shows a mutation again, and wants nine of ten plays to break the same invariant.
func replayMutation(t *testing.T, program string, m mutation, seed int) {
	t.Helper()
	again := 0
	for range *replays {
		if v := mustPlay(t, program, m, seed, playLimit); slices.Contains(v.brokenInvariants(), m.Invariant) {
			again++
		}
	}
	if *replays > 0 {
		t.Logf("replayed: %s breaks %s in %d of %d plays of seed %d", m.Name, m.Invariant, again, *replays, seed)
	}
	if again*10 < *replays*9 {
		t.Errorf("seed %d breaks %s again in %d of %d plays", seed, m.Invariant, again, *replays)
	}
}

// requireFailure wants a test to fail with the mutation.
func requireFailure(t *testing.T, overlay string, test killer) {
	t.Helper()
	name := "^" + strings.Join(strings.Split(test.Name, "/"), "$/^") + "$"
	c := exec.Command("go", "test", "-overlay", overlay, "-short", "-vet=off", "-count=1", "-timeout", "5m", "-run", name, "./"+test.Folder)
	c.Dir = root
	out, err := c.CombinedOutput()
	switch {
	case err == nil:
		t.Errorf("%s %s passes\n%s", test.Folder, test.Name, out)
	case bytes.Contains(out, []byte("[build failed]")):
		t.Errorf("the mutation does not compile\n%s", out)
	case !bytes.Contains(out, []byte(test.Text)):
		t.Errorf("%s %s fails without %q\n%s", test.Folder, test.Name, test.Text, out)
	}
}

// mustPlay plays a mutation's scenario in a process of its own, by a program with or without it.
func mustPlay(t *testing.T, program string, m mutation, seed int, limit time.Duration) verdict {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	c := exec.CommandContext(ctx, program)
	c.Env = append(os.Environ(), playScenario+"="+m.Name+".yaml", playSeed+"="+strconv.Itoa(seed), playDir+"="+t.TempDir())
	if program != os.Args[0] {
		c.Env = append(c.Env, playInvariant+"="+m.Invariant)
	}
	began := time.Now()
	out, err := c.CombinedOutput()
	_, text, ok := bytes.Cut(out, []byte(verdictPrefix))
	if !ok {
		t.Fatalf("play %s.yaml: %v, after %s\n%s", m.Name, err, time.Since(began).Round(time.Second), out)
	}
	var v verdict
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&v); err != nil {
		t.Fatalf("read the verdict: %v\n%s", err, out)
	}
	return v
}
