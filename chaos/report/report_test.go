package report_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/history"
	"skerry/chaos/report"
	"skerry/fleet"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// golden compares what was written with a file, or writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	g, w := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			t.Fatalf("%s differs in line %d (-rewrite writes it anew):\ngot  %s\nwant %s", path, i+1, g[i], w[i])
		}
	}
	t.Fatalf("%s has %d lines, now there are %d (-rewrite writes it anew)", path, len(w), len(g))
}

var pageStyle = regexp.MustCompile(`(?s)<style>.*?</style>`)

// goldenPage compares a page but for its style, which is a file of its own.
func goldenPage(t *testing.T, name, page string) {
	t.Helper()
	golden(t, name, pageStyle.ReplaceAllString(page, "<style></style>"))
}

func mustWriteRun(tb testing.TB, text []byte) string {
	tb.Helper()
	var b bytes.Buffer
	if err := report.WriteRun(&b, mustOpen(tb, text), report.PageLinks{History: "run.jsonl.gz", Index: "index.html"}); err != nil {
		tb.Fatal(err)
	}
	return b.String()
}

func TestRunPage(t *testing.T) {
	goldenPage(t, "run.html", mustWriteRun(t, newSample(3, 2, 3, 20*time.Minute).generateHistory(2, 4).concludeRun(history.Violated).encodeHistory(t)))
}

// TestAPageIsBounded writes pages of small, typical and huge runs.
func TestAPageIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		hubs, edges, jobs, outages int
		length                     time.Duration
		bytes                      int
		left                       bool // something has to be left out
	}{
		"an hour of ten edges":    {3, 10, 6, 26, time.Hour, 200 << 10, false},
		"a month of thirty edges": {3, 30, 6, 250, 30 * 24 * time.Hour, 550 << 10, true},
		"an hour of many edges":   {3, 300, 2, 150, time.Hour, 400 << 10, true},
	} {
		page := mustWriteRun(t, newSample(5, c.hubs, c.edges, c.length).generateHistory(c.jobs, c.outages).concludeRun(history.Pass).encodeHistory(t))
		if len(page) > c.bytes {
			t.Errorf("%s: %d KiB, at most %d", name, len(page)>>10, c.bytes>>10)
		}
		if got := strings.Contains(page, "Not drawn:"); got != c.left {
			t.Errorf("%s: says that something is left out: %v, want %v", name, got, c.left)
		}
		t.Logf("%s: %d KiB", name, len(page)>>10)
	}
}

func TestNothingIsFetched(t *testing.T) {
	page := mustWriteRun(t, newSample(1, 1, 2, time.Hour).generateHistory(2, 2).concludeRun(history.Pass).encodeHistory(t))
	for _, outside := range []string{"http:", "https:", "src=", "@import", "url(//", "<link"} {
		if strings.Contains(page, outside) {
			t.Errorf("the page has %s", outside)
		}
	}
}

// TestHostileNames gives everything that is a text a name that would be a script.
func TestHostileNames(t *testing.T) {
	const evil = `"><script>alert(1)</script><svg onload='x' {{.}} ]]>`
	s := newSample(1, 1, 1, time.Minute)
	s.hubs, s.edges = []string{evil + "h"}, []string{evil + "e"}
	s.generateHistory(0, 0)
	id := s.placeSampleAlloc(time.Second, s.edges[0], fleet.JobID(evil), "")
	s.stopAlloc(3*time.Second, s.edges[0], id)
	s.addObservation(time.Second, check.Observation{Process: &check.Process{Name: s.edges[0], Edge: true, What: evil}})
	s.addObservation(time.Second, check.Observation{Edge: &check.Edge{Name: s.edges[0], Link: &check.Link{Fenced: evil}}})
	s.addObservation(time.Second, check.Observation{Fault: &check.Fault{ID: 1, Kind: evil, Detail: evil, Targets: []string{evil}}})
	s.addObservation(time.Second, check.Observation{Refused: &check.Refused{By: evil, From: s.edges[0], Code: evil, Reason: evil}})
	s.addObservation(time.Second, check.Observation{Request: &check.Request{Edge: s.edges[0], What: evil, Alloc: evil}})
	s.addObservation(time.Second, check.Observation{Operation: &check.Operation{Does: evil, Outcome: evil}})
	s.addObservation(time.Second, check.Observation{Usage: &check.Usage{Who: evil, Goroutines: 1}})
	s.setClientStatus(time.Second, id, evil)
	s.addHistoryRecord(time.Minute, history.Record{Violation: &check.Violation{Invariant: 1, Where: evil, Message: evil, Evidence: []string{evil}}})
	s.addHistoryRecord(time.Minute, history.Record{Sometimes: &history.Sometimes{Name: evil}})
	s.addHistoryRecord(time.Minute, history.Record{Note: &history.Note{Where: evil, Text: evil}})
	s.addHistoryRecord(time.Minute, history.Record{End: &history.End{Outcome: history.Violated, Reasons: []string{evil}, Shortest: evil, Kept: []string{evil}}})
	text := s.encodeHistory(t)
	page := mustWriteRun(t, text)
	r, err := report.Rehearse(mustOpen(t, text))
	if err != nil {
		t.Fatal(err)
	}
	var rehearsal bytes.Buffer
	if err := r.WriteHTML(&rehearsal); err != nil {
		t.Fatal(err)
	}
	j, err := history.Judge(mustOpen(t, text))
	if err != nil {
		t.Fatal(err)
	}
	run := j.Recorded
	run.Report, run.History = evil, "javascript:alert(1)"
	c := history.Campaign{Name: evil, Repeat: evil, Versions: map[string]string{evil: evil}, Runs: []history.Run{run}}
	var campaign bytes.Buffer
	if err := report.WriteCampaign(&campaign, c); err != nil {
		t.Fatal(err)
	}
	for name, page := range map[string]string{"run": page, "rehearsal": rehearsal.String(), "campaign": campaign.String()} {
		if strings.Contains(page, "<script>alert") || strings.Contains(page, "<svg onload") || strings.Contains(page, `"javascript:`) {
			t.Errorf("%s: a name became a script", name)
		}
		if !strings.Contains(page, "alert(1)") {
			t.Errorf("%s: the names are not in it", name)
		}
	}
}

func TestAnEarlyEnd(t *testing.T) {
	text := newSample(1, 1, 2, time.Hour).generateHistory(2, 2).encodeHistory(t)
	if page := mustWriteRun(t, text); !strings.Contains(page, "Broken: it did not end") || !strings.Contains(page, "cut short") {
		t.Error("a history without an end is not shown as one")
	}
	if page := mustWriteRun(t, append(text, "nonsense\n"...)); !strings.Contains(page, "damaged") {
		t.Error("a damaged history is not shown as one")
	}
	var b bytes.Buffer
	header, _, _ := bytes.Cut(text, []byte("\n"))
	if err := report.WriteRun(&b, mustOpen(t, append(header, "\nnonsense\n"...)), report.PageLinks{}); err == nil {
		t.Error("a history that is damaged from its start on became a report")
	}
}

func FuzzRunPage(f *testing.F) {
	small := newSample(3, 1, 1, 20*time.Minute)
	small.addOutage("edge-1", time.Minute, 5*time.Minute, map[string][]fleet.AllocID{"edge-1": {small.placeSampleAlloc(time.Second, "edge-1", "web", "")}})
	f.Add(small.concludeRun(history.Void).encodeHistory(f))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := history.NewReader(bytes.NewReader(text))
		if err != nil {
			return
		}
		var b bytes.Buffer
		_ = report.WriteRun(&b, r, report.PageLinks{}) // a damaged history is an error
		if r, err = history.NewReader(bytes.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		if rehearsal, err := report.Rehearse(r); err == nil {
			_ = rehearsal.Print(&b) // into memory
		}
	})
}
