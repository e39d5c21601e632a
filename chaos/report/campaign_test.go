package report_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/history"
	"skerry/chaos/report"
)

func sampleCampaign(tb testing.TB) history.Campaign {
	tb.Helper()
	c := history.Campaign{
		Format: history.Format, Name: "simulation", Start: time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC),
		Repeat: "skerry-chaos sim --seeds 4", Versions: map[string]string{"go": "go1.26.8"}, Cores: 2, Wall: 70 * time.Second,
		Expected: []string{"cut", "clone"},
	}
	for i, o := range []history.Outcome{history.Pass, history.Void, history.Violated, history.Pass} {
		j, err := history.Judge(mustOpen(tb, newSample(uint64(i), 3, 5, time.Hour).generateHistory(3, 12).concludeRun(o).encodeHistory(tb)))
		if err != nil {
			tb.Fatal(err)
		}
		run := j.Recorded
		run.Seed = uint64(i + 1)
		run.Report, run.History = fmt.Sprintf("seed-%d/report.html", i+1), fmt.Sprintf("seed-%d/history.jsonl.gz", i+1)
		c.Runs = append(c.Runs, run)
	}
	return c
}

func TestCampaign(t *testing.T) {
	c := sampleCampaign(t)
	var text, page bytes.Buffer
	if err := report.PrintCampaign(&text, c); err != nil {
		t.Fatal(err)
	}
	golden(t, "campaign.txt", text.String())
	mustFit(t, text.String())
	if err := report.WriteCampaign(&page, c); err != nil {
		t.Fatal(err)
	}
	goldenPage(t, "campaign.html", page.String())
}

func TestAHugeCampaign(t *testing.T) {
	var c history.Campaign
	for i := range 5000 {
		c.Runs = append(c.Runs, history.Run{
			Name: strings.Repeat("drawn", 30), Seed: uint64(i), Outcome: history.Broken, Reasons: []string{strings.Repeat("why ", 100)}, Repeat: strings.Repeat("r", 60),
			Faults:     []history.FaultCount{{Fault: fmt.Sprintf("kind-%d", i%40), Times: 1}},
			Violations: []history.ViolationCount{{Invariant: check.Invariant(1 + i%24), Count: 1}},
		})
	}
	var text, page bytes.Buffer
	if err := report.PrintCampaign(&text, c); err != nil {
		t.Fatal(err)
	}
	mustFit(t, text.String())
	if text.Len() > 40<<10 {
		t.Errorf("%d bytes for a terminal", text.Len())
	}
	if err := report.WriteCampaign(&page, c); err != nil {
		t.Fatal(err)
	}
	if page.Len() > 800<<10 {
		t.Errorf("a page of %d KiB", page.Len()>>10)
	}
}

func TestAnEmptyCampaign(t *testing.T) {
	var b bytes.Buffer
	if err := report.PrintCampaign(&b, history.Campaign{}); err != nil {
		t.Fatal(err)
	}
	if err := report.WriteCampaign(&b, history.Campaign{}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "no run passed") {
		t.Error("a campaign without a run passes")
	}
}

func TestPrintJudgement(t *testing.T) {
	j, err := history.Judge(mustOpen(t, newSample(3, 2, 3, 20*time.Minute).generateHistory(2, 4).concludeRun(history.Violated).encodeHistory(t)))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := report.PrintJudgement(&b, j); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"violation then", "judged otherwise than then: sequence: broken 0 times now, 3 times then"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
