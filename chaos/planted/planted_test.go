//go:build planted

package planted_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/history"
	"skerry/chaos/schedule"
	"skerry/chaos/virtual"
	"skerry/planted"
)

const (
	// within is how soon a bug has to be found, in real time.
	within = time.Minute
	// patience bounds a run without a bug, which goes on to its end.
	patience = 3 * time.Minute
)

// What a child process is told: which scenario it shall play, and where.
const (
	playScenario = "PLANTED_SCENARIO"
	playDir      = "PLANTED_DIR"
)

// smallJournal is the bound of edges' journals in the scenario that fills one.
const smallJournal = 64 << 10

// verdict is what a child process prints.
type verdict struct {
	Outcome history.Outcome
	Reasons []string
	Found   []check.Violation
	Reached uint64 // how often the bug had its way
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

// names reports whether a violation is of the invariant.
func (v verdict) names(slug string) bool {
	for _, f := range v.Found {
		if f.Invariant.Slug() == slug {
			return true
		}
	}
	return false
}

// TestMain plays one scenario where this process is a child: a bug may end the
// process that it is planted in.
func TestMain(m *testing.M) {
	if path := os.Getenv(playScenario); path != "" {
		virtual.Main(func() { play(path, os.Getenv(playDir)) })
	}
	os.Exit(m.Run())
}

// play plays a scenario to its end, or until the planted bug is found and named.
func play(path, dir string) {
	text, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	s, err := schedule.Parse(path, text)
	if err != nil {
		panic(err)
	}
	bug := planted.Bug(os.Getenv(planted.Environment))
	p := virtual.Play{Schedule: s, Name: path, Dir: dir, Strict: true, Found: func(v check.Violation) {
		if v.Invariant.Slug() == invariantOf(bug) {
			tell(verdict{Outcome: history.Violated, Found: []check.Violation{v}, Reached: planted.Reached()})
			os.Exit(0)
		}
	}}
	if path == string(planted.UnboundedBuffer)+".txt" {
		p.Fleet.JournalMaxBytes, p.Limits.JournalBytes = smallJournal, smallJournal
	}
	out, err := p.Run(context.Background(), func() time.Duration { return 0 })
	v := verdict{Outcome: out.Outcome, Reasons: out.Reasons, Found: out.Found, Reached: planted.Reached()}
	if err != nil {
		v.Reasons = append(v.Reasons, err.Error())
	}
	tell(v)
}

const mark = "verdict: "

func tell(v verdict) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString("\n" + mark + string(b) + "\n")
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
	for _, e := range planted.Catalogue() {
		t.Run(string(e.Bug), func(t *testing.T) {
			t.Parallel()
			path := string(e.Bug) + ".txt"
			if v := mustPlay(t, path, "", patience); v.Outcome != history.Pass {
				t.Errorf("without the bug: %s %q\n%s", v.Outcome, v.Reasons, v)
			}
			if v := mustPlay(t, path, e.Bug, within); !v.names(e.Invariant) {
				t.Errorf("with the bug, whose place was passed %d times, nothing broke %s: %s %q\n%s",
					v.Reached, e.Invariant, v.Outcome, v.Reasons, v)
			}
		})
	}
}

// mustPlay plays a scenario in a process of its own.
func mustPlay(t *testing.T, path string, bug planted.Bug, limit time.Duration) verdict {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	c := exec.CommandContext(ctx, os.Args[0])
	c.Env = append(os.Environ(), playScenario+"="+path, playDir+"="+t.TempDir(), planted.Environment+"="+string(bug))
	began := time.Now()
	out, err := c.CombinedOutput()
	_, text, ok := bytes.Cut(out, []byte(mark))
	if !ok {
		t.Fatalf("play %s with the bug %q: %v, after %s\n%s", path, bug, err, time.Since(began).Round(time.Second), out)
	}
	var v verdict
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&v); err != nil {
		t.Fatalf("read the verdict: %v\n%s", err, out)
	}
	t.Logf("with the bug %q: %s in %s", bug, v.Outcome, time.Since(began).Round(time.Millisecond))
	return v
}
