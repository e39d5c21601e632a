package scheduler_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// drawLife draws the lines of a life.
func drawLife(seed uint64) []string {
	d := drawer{rand.New(rand.NewPCG(seed, 1))}
	lines := []string{"config" + d.maybe(2, " spread") + d.maybe(2, " preempt")}
	for range 1 + d.IntN(4) {
		lines = append(lines, d.node())
	}
	job := d.job()
	lines = append(lines, job, "respond")
	for range 4 + d.IntN(10) {
		lines = append(lines, d.event())
	}
	return lines
}

type drawer struct{ *rand.Rand }

func (d drawer) of(words ...string) string { return words[d.IntN(len(words))] }

// maybe is s, once in n times.
func (d drawer) maybe(n int, s string) string {
	if d.IntN(n) == 0 {
		return s
	}
	return ""
}

func (d drawer) node() string {
	return fmt.Sprintf("node %s %s %s", d.of("1000", "2000", "4000"), d.of("a", "a", "b"), d.of("default", "default", "classic"))
}

func (d drawer) id() string { return d.of("s1", "s1", "s1", "s2", "b1", "y1", "y1", "z1") }

func (d drawer) event() string {
	node := d.IntN(5)
	switch d.IntN(22) {
	case 0, 1, 2, 3:
		return d.job()
	case 4, 5, 6:
		return "respond"
	case 7, 8:
		return fmt.Sprintf("say %d %s", d.IntN(12), d.of("failed", "failed", "complete", "running", "healthy", "healthy", "unhealthy"))
	case 9, 10:
		return fmt.Sprintf("away %d", node)
	case 11:
		return fmt.Sprintf("%s %d", d.of("back", "back", "open"), node)
	case 12:
		return fmt.Sprintf("back %d", node)
	case 13, 14:
		return "wait " + d.of("1s", "31s", "6m", "11m", "1h", "25h")
	case 15:
		return fmt.Sprintf("drain %d %s%s", node, d.of("0s", "-1s", "1h", "1h"), d.maybe(3, " keep-system"))
	case 16:
		return fmt.Sprintf("%s %d", d.of("undrain", "eligible", "ineligible"), node)
	case 17:
		return fmt.Sprintf("halt %d", d.IntN(12))
	case 18:
		return d.of("stop ", "stop ", "purge ") + d.id()
	case 19:
		return fmt.Sprintf("respond %d", node)
	}
	return d.of("promote ", "promote ", "fail ", "pause ", "resume ") + d.of("s1", "s1", "s2", "y1")
}

func (d drawer) job() string {
	id := d.id()
	var b strings.Builder
	fmt.Fprintf(&b, "job %s", id)
	if id[0] == 's' || id[0] == 'b' {
		fmt.Fprintf(&b, " count=%d", d.IntN(5))
	}
	fmt.Fprintf(&b, " cpu=%s env=%d", d.of("100", "100", "400", "900"), d.IntN(3))
	b.WriteString(d.maybe(4, " meta=1") + d.maybe(4, " priority="+d.of("10", "90")) + d.maybe(8, " dynamic"))
	if id[0] == 'y' || id[0] == 'z' {
		b.WriteString(d.maybe(8, " port="+map[byte]string{'y': "80", 'z': "81"}[id[0]]))
	} else {
		b.WriteString(d.maybe(4, d.of(" attempts=0", " attempts=1", " delay=30s", " delay=5m")))
		b.WriteString(d.maybe(3, d.of(" lost=10m", " lost=10m noreplace", " noreplace", " stopafter=1m", " lost=10m keep=keep_replacement", " lost=10m keep=best_score")))
	}
	if strings.ContainsAny(id, "sy") && d.IntN(4) > 0 {
		fmt.Fprintf(&b, " parallel=%d", 1+d.IntN(3))
		canaries := " canary=" + d.of("1", "2")
		if id[0] == 'y' {
			canaries = " canary=" + d.of("20", "50", "100")
		}
		b.WriteString(d.maybe(3, canaries+d.maybe(2, " promote")) + d.maybe(4, " revert") + d.maybe(3, " site="+d.of("1", "2")))
		b.WriteString(d.maybe(4, " waits="+d.of("all", "reachable", "60%")) + d.maybe(2, " progress=10m"))
	}
	return b.String()
}
