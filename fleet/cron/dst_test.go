package cron_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"skerry/fleet"
	"skerry/fleet/cron"
)

// TestWindowsAgainstTheClockOnTheWall holds windows against what anybody on site sees: one
// opens whenever the clock on the wall shows its time, in spring not at all where that time
// is left out, and in autumn twice where it comes twice.
func TestWindowsAgainstTheClockOnTheWall(t *testing.T) {
	// Days on which clocks are put on or back.
	turns := map[string][]string{
		"Europe/Berlin":  {"2026-03-29", "2026-10-25"},
		losAngeles:       {"2026-03-08", "2026-11-01"},
		"America/Havana": {"2026-03-08", "2026-11-01"}, // at midnight
		"Asia/Kolkata":   {"2026-07-01"},
	}
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom([]string{"Europe/Berlin", losAngeles, "America/Havana", "Asia/Kolkata"}).Draw(t, "zone")
		where, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		day, err := time.ParseInLocation(time.DateOnly, rapid.SampledFrom(turns[zone]).Draw(t, "day"), where)
		if err != nil {
			t.Fatal(err)
		}
		minute, every := rapid.IntRange(0, 59).Draw(t, "minute"), rapid.Bool().Draw(t, "every hour")
		hour := rapid.IntRange(0, 4).Draw(t, "hour")
		w := fleet.UpdateWindow{
			Cron: fmt.Sprintf("%d %d * * *", minute, hour), TimeZone: zone,
			Duration: time.Duration(rapid.IntRange(1, 150).Draw(t, "length")) * time.Minute,
		}
		if every {
			w.Cron = fmt.Sprintf("%d * * * *", minute)
		}
		now := day.Add(time.Duration(rapid.IntRange(-60, 8*60).Draw(t, "now")) * time.Minute)
		open := false
		for at := now; at.After(now.Add(-w.Duration)); at = at.Add(-time.Minute) {
			open = open || at.Minute() == minute && (every || at.Hour() == hour)
		}
		s, err := cron.WindowStateAt([]fleet.UpdateWindow{w}, "", now)
		if err != nil || s.Open != open {
			t.Fatalf("%+v at %s: %+v, %v, want open: %t", w, now, s, err, open)
		}
		if open {
			return
		}
		at := now.Add(time.Minute)
		for !(at.Minute() == minute && (every || at.Hour() == hour)) {
			at = at.Add(time.Minute)
		}
		if !s.Next.Equal(at) {
			t.Errorf("%+v at %s: opens at %s, want %s", w, now, s.Next, at)
		}
	})
}
