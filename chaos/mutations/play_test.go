package mutations_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry/chaos/history"
	"skerry/chaos/mutate"
	"skerry/chaos/virtual"
)

const (
	// findLimit is how soon a mutation has to be found, in real time.
	findLimit = time.Minute
	// playLimit bounds a run without a mutation, which goes on to its end.
	playLimit = 3 * time.Minute
)

// brokenInvariants returns the invariants that a run broke, each once, in the order of their names.
func brokenInvariants(r virtual.Result) []string {
	var out []string
	for _, f := range r.Found {
		out = append(out, f.Invariant.Slug())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// describeRun returns the outcome of a run with its first violations.
func describeRun(r virtual.Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %q %s", r.Run.Outcome, r.Run.Reasons, r.Error)
	for _, f := range r.Found[:min(len(r.Found), 5)] {
		b.WriteString("\n" + f.String())
	}
	return b.String()
}

// findMutation wants that the mutation breaks its invariant, that its scenario passes without
// it, and that each of its tests fails.
func findMutation(t *testing.T, m mutation, changed map[string][]byte, sound string) {
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
	if r := mustPlay(t, sound, m, 1, playLimit, ""); r.Run.Outcome != history.Pass {
		t.Errorf("without the mutation: %s", describeRun(r))
	}
	program := mustBuild(t, folder, "mutated", "-overlay", overlay)
	began := time.Now()
	for seed := uint64(1); ; seed++ { // mustPlay ends it when the time is over
		r := mustPlay(t, program, m, seed, findLimit-time.Since(began), m.Invariant)
		broken := brokenInvariants(r)
		if slices.Contains(broken, m.Invariant) {
			t.Logf("found: %s breaks %v within %.1f s, play %d", m.Name, broken, time.Since(began).Seconds(), seed)
			replayMutation(t, program, m, seed)
			return
		}
		// Another seed may show it.
		t.Logf("nothing broke %s: %s", m.Invariant, describeRun(r))
	}
}

// replayMutation plays a seed that shows a mutation again, and wants nine of ten plays to break the same invariant.
func replayMutation(t *testing.T, program string, m mutation, seed uint64) {
	t.Helper()
	again := 0
	for range *replays {
		r := mustPlay(t, program, m, seed, playLimit, m.Invariant)
		if slices.Contains(brokenInvariants(r), m.Invariant) {
			again++
		} else {
			t.Logf("replay of seed %d: %s", seed, describeRun(r))
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

// mustBuild builds skerry-chaos with further arguments of go build, and returns its path. With cgo, the threads of the C
// library would make its plays differ.
func mustBuild(t *testing.T, folder, name string, args ...string) string {
	t.Helper()
	program := filepath.Join(folder, name)
	c := exec.Command("go", append([]string{"build", "-o", program}, append(args, "./cmd/skerry-chaos")...)...)
	c.Dir, c.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return program
}

// mustPlay plays a mutation's scenario with that seed in a process of its own, until the invariant is broken.
func mustPlay(t *testing.T, program string, m mutation, seed uint64, limit time.Duration, invariant string) virtual.Result {
	t.Helper()
	s, err := virtual.ReadSchedule(m.Name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	s.Seed = seed
	folder := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	began := time.Now()
	r, err := virtual.Job{
		Play:   virtual.Play{Schedule: s, Name: m.Name, Dir: filepath.Join(folder, "data"), Strict: true},
		Folder: folder, Until: invariant,
	}.Run(ctx, []string{program, "play-one"})
	if err != nil {
		t.Fatalf("play %s.yaml with seed %d: %v, after %s", m.Name, seed, err, time.Since(began).Round(time.Second))
	}
	return r
}
