package scheduler_test

import (
	"fmt"
	"math/rand/v2"
)

// drawLife draws the lines of a life: of a few jobs, that change a little at a time and
// at times back to what they were.
func drawLife(seed uint64) []string {
	d := drawer{rand.New(rand.NewPCG(seed, 1)), nil, map[string][]string{}, map[string][]string{}}
	for range 1 + d.IntN(3) {
		d.cast = append(d.cast, d.of("s1", "s1", "s2", "y1", "y1", "b1", "z1"))
	}
	lines := []string{"config" + d.maybe(2, " spread") + d.maybe(2, " preempt")}
	if seed%3 == 0 { // not drawn: the lives of older seeds stay as they are
		lines[0] += " race"
	}
	for range 1 + d.IntN(4) {
		lines = append(lines, d.node())
	}
	for range d.cast {
		lines = append(lines, d.job())
	}
	lines = append(lines, d.maybe(2, "respond"))
	for range 6 + d.IntN(30) {
		lines = append(lines, d.event())
	}
	if seed%2 == 1 { // nor is this
		lines = append(lines, "rest")
	}
	return lines
}

type drawer struct {
	*rand.Rand
	cast  []string            // ids of jobs
	parts map[string][]string // of a job's newest version
	past  map[string][]string // a job's lines
}

func (d drawer) of(words ...string) string { return words[d.IntN(len(words))] }

// maybe is s, once in n times.
func (d drawer) maybe(n int, s string) string {
	if d.IntN(n) == 0 {
		return s
	}
	return ""
}

func (d drawer) node() string {
	return fmt.Sprintf("node %s %s %s", d.of("1000", "1000", "2000", "4000"), d.of("a", "a", "b"), d.of("default", "default", "classic"))
}

func (d drawer) id() string { return d.of(d.cast...) }

func (d drawer) event() string {
	node := d.IntN(5)
	switch d.IntN(24) {
	case 0, 1, 2, 3:
		return d.job()
	case 4, 5, 6, 7, 8:
		return "respond"
	case 9, 10:
		return fmt.Sprintf("say %d %s", d.IntN(12), d.of("failed", "failed", "complete", "running", "healthy", "healthy", "unhealthy"))
	case 11, 12:
		return fmt.Sprintf("away %d", node)
	case 13:
		return fmt.Sprintf("%s %d", d.of("back", "back", "open"), node)
	case 14:
		return fmt.Sprintf("back %d", node)
	case 15, 16:
		return "wait " + d.of("1s", "31s", "6m", "11m", "1h", "25h")
	case 17:
		return fmt.Sprintf("drain %d %s%s", node, d.of("0s", "-1s", "1h", "1h"), d.maybe(3, " keep-system"))
	case 18:
		return fmt.Sprintf("%s %d", d.of("undrain", "eligible", "ineligible"), node)
	case 19:
		return fmt.Sprintf("halt %d", d.IntN(12))
	case 20:
		return d.of("stop ", "purge ") + d.id()
	case 21:
		return fmt.Sprintf("respond %d", node)
	}
	return d.of("promote ", "promote ", "promote ", "fail ", "pause ", "resume ", "resume ") + d.id()
}

// job is a job's line.
func (d drawer) job() string {
	id := d.id()
	if past := d.past[id]; len(past) > 1 && d.IntN(6) == 0 {
		return d.of(past...)
	}
	if d.parts[id] == nil || d.IntN(8) == 0 {
		d.parts[id] = make([]string, len(jobParts))
		for i := range jobParts {
			d.parts[id][i] = d.part(id, i)
		}
	} else {
		for range 1 + d.IntN(2) {
			i := d.IntN(len(jobParts))
			d.parts[id][i] = d.part(id, i)
		}
	}
	line := "job " + id
	for _, part := range d.parts[id] {
		line += part
	}
	d.past[id] = append(d.past[id], line)
	return line
}

// jobParts are what a job's line consists of; what is there twice changes more often,
// and the second one holds.
var jobParts = []string{"count", "cpu", "env", "env", "cpu", "touch", "priority", "ports", "reschedule", "disconnect", "update"}

// part draws one part of a job, "" for none.
func (d drawer) part(id string, i int) string {
	kind := id[:1]
	everywhere := kind == "y" || kind == "z"
	switch jobParts[i] {
	case "count":
		if !everywhere {
			return fmt.Sprintf(" count=%d", d.IntN(5))
		}
	case "cpu":
		return d.maybe(2, " cpu="+d.of("100", "400", "900", "900"))
	case "env":
		return fmt.Sprintf(" env=%d", d.IntN(3))
	case "touch":
		return d.maybe(2, " touch="+d.of("USR1", "USR2"))
	case "priority":
		return d.maybe(3, " priority="+d.of("10", "90"))
	case "ports":
		if everywhere {
			return d.maybe(6, " port="+map[string]string{"y": "80", "z": "81"}[kind])
		}
		return d.maybe(6, " dynamic")
	case "reschedule":
		if !everywhere {
			return d.maybe(3, d.of(" attempts=0", " attempts=1", " delay=30s", " delay=5m"))
		}
	case "disconnect":
		if !everywhere {
			return d.maybe(3, d.of(" lost=10m", " lost=10m noreplace", " noreplace", " stopafter=1m", " lost=10m keep=keep_replacement", " lost=10m keep=best_score"))
		}
	case "update":
		if kind == "s" || kind == "y" {
			return d.update(kind)
		}
	}
	return ""
}

// update draws how a job is rolled out.
func (d drawer) update(kind string) string {
	if d.IntN(8) == 0 {
		return ""
	}
	canaries := " canary=" + d.of("1", "2")
	if kind == "y" {
		canaries = " canary=" + d.of("20", "50", "100")
	}
	return fmt.Sprintf(" parallel=%d", 1+d.IntN(3)) +
		d.maybe(3, canaries+d.maybe(2, " promote")) + d.maybe(4, " revert") + d.maybe(3, " site="+d.of("1", "2")) +
		d.maybe(4, " waits="+d.of("all", "reachable", "60%")) + d.maybe(2, " progress=10m")
}
