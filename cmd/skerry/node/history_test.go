package node

import (
	"strings"
	"testing"
	"time"
)

func TestParsePastTime(t *testing.T) {
	zone := time.FixedZone("here", 2*3600)
	now := time.Date(2026, 5, 1, 9, 0, 0, 0, zone)
	for text, want := range map[string]string{
		"02:10":                "2026-05-01T02:10:00+02:00",
		"23:30":                "2026-04-30T23:30:00+02:00",
		"02:10:05":             "2026-05-01T02:10:05+02:00",
		"2026-04-29 02:10":     "2026-04-29T02:10:00+02:00",
		"2026-04-29":           "2026-04-29T00:00:00+02:00",
		"2026-05-01T02:10:00Z": "2026-05-01T02:10:00Z",
		"3h":                   "2026-05-01T06:00:00+02:00",
	} {
		if got, err := parsePastTime(text, now); err != nil || got.Format(time.RFC3339) != want {
			t.Errorf("%s: %s, %v, want %s", text, got.Format(time.RFC3339), err, want)
		}
	}
	for _, text := range []string{"", "yesterday", "25:00", "-3h"} {
		if _, err := parsePastTime(text, now); err == nil || !strings.Contains(err.Error(), "is not a time") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestTimeWindow asks at three in the morning for the time from ten past two to twenty to six.
func TestTimeWindow(t *testing.T) {
	for hour, want := range map[int]string{
		1: "2026-04-30T02:10:00Z to 2026-04-30T05:40:00Z",
		3: "2026-05-01T02:10:00Z to 2026-05-01T05:40:00Z",
		9: "2026-05-01T02:10:00Z to 2026-05-01T05:40:00Z",
	} {
		q, err := timeWindow("02:10", "05:40", time.Date(2026, 5, 1, hour, 0, 0, 0, time.UTC))
		if got := q.Since.Format(time.RFC3339) + " to " + q.Until.Format(time.RFC3339); err != nil || got != want {
			t.Errorf("at %d: %s, %v, want %s", hour, got, err, want)
		}
	}
	if _, err := timeWindow("3h", "soon", time.Now()); err == nil || !strings.Contains(err.Error(), "read --until") {
		t.Errorf("%v", err)
	}
}

// TestNodeChoice checks the expression that chooses nodes: a pattern matches whole names alone.
func TestNodeChoice(t *testing.T) {
	c := nodeChoice{site: "shop-*.north", pool: "tills", status: "ready", expression: `Meta.rack == "r1"`}
	want := `(Site matches "^shop-.*\\.north$" or Site == "" and Datacenter matches "^shop-.*\\.north$") and NodePool == "tills" and Status == "ready" and (Meta.rack == "r1")`
	if got, err := c.filterExpression(); got != want || err != nil {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
	if _, err := (&nodeChoice{status: "away"}).filterExpression(); err == nil || !strings.Contains(err.Error(), `"away" is not a status`) {
		t.Errorf("%v", err)
	}
}
