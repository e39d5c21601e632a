package scheduler_test

import (
	"fmt"
	"math/rand/v2"
)

// generateTrace draws the lines of a life: of a few jobs, that change a little at a time and
// at times back to what they were.
func generateTrace(seed uint64) []string {
	d := eventGenerator{rand.New(rand.NewPCG(seed, 1)), nil, map[string][]string{}, map[string][]string{}}
	for range 1 + d.IntN(3) {
		d.jobIDs = append(d.jobIDs, d.pickWord("s1", "s1", "s2", "y1", "y1", "b1", "z1"))
	}
	lines := []string{"config" + d.onceInN(2, " spread") + d.onceInN(2, " preempt")}
	if seed%3 == 0 { // not drawn: the lives of older seeds stay as they are
		lines[0] += " race"
	}
	for range 1 + d.IntN(4) {
		lines = append(lines, d.randomNodeSpec())
	}
	for range d.jobIDs {
		lines = append(lines, d.randomJobLine())
	}
	lines = append(lines, d.onceInN(2, "respond"))
	for range 6 + d.IntN(30) {
		lines = append(lines, d.randomEvent())
	}
	if seed%2 == 1 { // nor is this
		lines = append(lines, "rest")
	}
	return lines
}

type eventGenerator struct {
	*rand.Rand
	jobIDs   []string            // ids of jobs
	parts    map[string][]string // of a job's newest version
	jobLines map[string][]string // a job's lines
}

func (d eventGenerator) pickWord(words ...string) string { return words[d.IntN(len(words))] }

// onceInN is s, once in n times.
func (d eventGenerator) onceInN(n int, s string) string {
	if d.IntN(n) == 0 {
		return s
	}
	return ""
}

func (d eventGenerator) randomNodeSpec() string {
	return fmt.Sprintf("node %s %s %s", d.pickWord("1000", "1000", "2000", "4000"), d.pickWord("a", "a", "b"), d.pickWord("default", "default", "classic"))
}

func (d eventGenerator) randomJobID() string { return d.pickWord(d.jobIDs...) }

func (d eventGenerator) randomEvent() string {
	node := d.IntN(5)
	switch d.IntN(24) {
	case 0, 1, 2, 3:
		return d.randomJobLine()
	case 4, 5, 6, 7, 8:
		return "respond"
	case 9, 10:
		return fmt.Sprintf("say %d %s", d.IntN(12), d.pickWord("failed", "failed", "complete", "running", "healthy", "healthy", "unhealthy"))
	case 11, 12:
		return fmt.Sprintf("away %d", node)
	case 13:
		return fmt.Sprintf("%s %d", d.pickWord("back", "back", "open"), node)
	case 14:
		return fmt.Sprintf("back %d", node)
	case 15, 16:
		return "wait " + d.pickWord("1s", "31s", "6m", "11m", "1h", "25h")
	case 17:
		return fmt.Sprintf("drain %d %s%s", node, d.pickWord("0s", "-1s", "1h", "1h"), d.onceInN(3, " keep-system"))
	case 18:
		return fmt.Sprintf("%s %d", d.pickWord("undrain", "eligible", "ineligible"), node)
	case 19:
		return fmt.Sprintf("halt %d", d.IntN(12))
	case 20:
		return d.pickWord("stop ", "purge ") + d.randomJobID()
	case 21:
		return fmt.Sprintf("respond %d", node)
	}
	return d.pickWord("promote ", "promote ", "promote ", "fail ", "pause ", "resume ", "resume ") + d.randomJobID()
}

// randomJobLine is a job's line.
func (d eventGenerator) randomJobLine() string {
	id := d.randomJobID()
	if past := d.jobLines[id]; len(past) > 1 && d.IntN(6) == 0 {
		return d.pickWord(past...)
	}
	if d.parts[id] == nil || d.IntN(8) == 0 {
		d.parts[id] = make([]string, len(jobParts))
		for i := range jobParts {
			d.parts[id][i] = d.randomJobPart(id, i)
		}
	} else {
		for range 1 + d.IntN(2) {
			i := d.IntN(len(jobParts))
			d.parts[id][i] = d.randomJobPart(id, i)
		}
	}
	line := "job " + id
	for _, part := range d.parts[id] {
		line += part
	}
	d.jobLines[id] = append(d.jobLines[id], line)
	return line
}

// jobParts are what a job's line consists of; what is there twice changes more often,
// and the second one holds.
var jobParts = []string{"count", "cpu", "env", "env", "cpu", "touch", "priority", "ports", "reschedule", "disconnect", "update"}

// randomJobPart draws one part of a job, "" for none.
func (d eventGenerator) randomJobPart(id string, i int) string {
	kind := id[:1]
	everywhere := kind == "y" || kind == "z"
	switch jobParts[i] {
	case "count":
		if !everywhere {
			return fmt.Sprintf(" count=%d", d.IntN(5))
		}
	case "cpu":
		return d.onceInN(2, " cpu="+d.pickWord("100", "400", "900", "900"))
	case "env":
		return fmt.Sprintf(" env=%d", d.IntN(3))
	case "touch":
		return d.onceInN(2, " touch="+d.pickWord("USR1", "USR2"))
	case "priority":
		return d.onceInN(3, " priority="+d.pickWord("10", "90"))
	case "ports":
		if everywhere {
			return d.onceInN(6, " port="+map[string]string{"y": "80", "z": "81"}[kind])
		}
		return d.onceInN(6, " dynamic")
	case "reschedule":
		if !everywhere {
			return d.onceInN(3, d.pickWord(" attempts=0", " attempts=1", " delay=30s", " delay=5m"))
		}
	case "disconnect":
		if !everywhere {
			return d.onceInN(3, d.pickWord(" lost=10m", " lost=10m noreplace", " noreplace", " stopafter=1m", " lost=10m keep=keep_replacement", " lost=10m keep=best_score"))
		}
	case "update":
		if kind == "s" || kind == "y" {
			return d.randomUpdateSpec(kind)
		}
	}
	return ""
}

// randomUpdateSpec draws how a job is rolled out.
func (d eventGenerator) randomUpdateSpec(kind string) string {
	if d.IntN(8) == 0 {
		return ""
	}
	canaries := " canary=" + d.pickWord("1", "2")
	if kind == "y" {
		canaries = " canary=" + d.pickWord("20", "50", "100")
	}
	return fmt.Sprintf(" parallel=%d", 1+d.IntN(3)) +
		d.onceInN(3, canaries+d.onceInN(2, " promote")) + d.onceInN(4, " revert") + d.onceInN(3, " site="+d.pickWord("1", "2")) +
		d.onceInN(4, " waits="+d.pickWord("all", "reachable", "60%")) + d.onceInN(2, " progress=10m")
}
