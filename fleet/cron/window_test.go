package cron_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/fleet/cron"
)

func TestWindows(t *testing.T) {
	night := fleet.UpdateWindow{Cron: "0 2 * * *", Duration: 3 * time.Hour}
	for _, tc := range []struct {
		name    string
		windows []fleet.UpdateWindow
		site    string
		now     string // UTC
		open    bool
		at      string // UTC: since when it is open, or when it opens; "" for never
	}{
		{"before it opens", []fleet.UpdateWindow{night}, "", "2026-07-01 01:59", false, "2026-07-01 02:00"},
		{"when it opens", []fleet.UpdateWindow{night}, "", "2026-07-01 02:00", true, "2026-07-01 02:00"},
		{"in its last minute", []fleet.UpdateWindow{night}, "", "2026-07-01 04:59", true, "2026-07-01 02:00"},
		{"when it closes", []fleet.UpdateWindow{night}, "", "2026-07-01 05:00", false, "2026-07-02 02:00"},
		{"in the site's zone", []fleet.UpdateWindow{night}, "Europe/Berlin", "2026-07-01 00:00", true, "2026-07-01 00:00"},
		{"in the site's zone, by its name", []fleet.UpdateWindow{{Cron: "0 2 * * *", Duration: time.Hour, TimeZone: fleet.SiteTimeZone}},
			"Asia/Tokyo", "2026-07-01 12:00", false, "2026-07-01 17:00"},
		{"in a zone of its own", []fleet.UpdateWindow{{Cron: "0 2 * * *", Duration: time.Hour, TimeZone: "Asia/Tokyo"}},
			"Europe/Berlin", "2026-07-01 17:30", true, "2026-07-01 17:00"},
		{"the first of two that are open", []fleet.UpdateWindow{{Cron: "0 4 * * *", Duration: 3 * time.Hour}, night}, "", "2026-07-01 04:30", true, "2026-07-01 02:00"},
		{"the next of two", []fleet.UpdateWindow{night, {Cron: "0 12 * * 0", Duration: time.Hour}}, "", "2026-07-05 06:00", false, "2026-07-05 12:00"},
		{"over midnight", []fleet.UpdateWindow{{Cron: "0 22 * * 6", Duration: 8 * time.Hour}}, "", "2026-07-05 05:59", true, "2026-07-04 22:00"},
		{"never again", []fleet.UpdateWindow{{Cron: "0 2 1 7 * 2026", Duration: time.Hour}}, "", "2026-07-01 03:00", false, ""},
		{"in the hour that spring leaves out", []fleet.UpdateWindow{{Cron: "30 2 * * *", Duration: time.Hour}}, "Europe/Berlin", "2026-03-29 01:15", false, "2026-03-30 00:30"},
		{"no window", nil, "", "2026-07-01 03:00", true, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := cron.WindowStateAt(tc.windows, tc.site, mustIn(t, "UTC", tc.now))
			if err != nil {
				t.Fatal(err)
			}
			at := s.Next
			if s.Open {
				at = s.Since
			}
			got := ""
			if !at.IsZero() {
				got = at.UTC().Format("2006-01-02 15:04")
			}
			if s.Open != tc.open || got != tc.at {
				t.Errorf("open %t, %q; want %t, %q", s.Open, got, tc.open, tc.at)
			}
		})
	}
}

// A window that cannot be read is none that is open, and neither are those beside it.
func TestWindowsThatCannotBeRead(t *testing.T) {
	now := time.Date(2026, 7, 1, 3, 0, 0, 0, time.UTC)
	always := fleet.UpdateWindow{Cron: "0 * * * *", Duration: time.Hour}
	for name, w := range map[string]fleet.UpdateWindow{
		"expression": {Cron: "soon", Duration: time.Hour}, "zone": {Cron: "@daily", Duration: time.Hour, TimeZone: "Mars/Olympus"},
	} {
		if s, err := cron.WindowStateAt([]fleet.UpdateWindow{always, w}, "", now); err == nil || s.Open {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	if s, err := cron.WindowStateAt([]fleet.UpdateWindow{always}, "Mars/Olympus", now); err == nil || s.Open {
		t.Errorf("the site's zone: %+v, %v", s, err)
	}
}

func TestProblemsOfWindows(t *testing.T) {
	now := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name string
		w    fleet.UpdateWindow
		want []string // parts of the lines
	}{
		{"right", fleet.UpdateWindow{Cron: "0 2 * * *", Duration: 3 * time.Hour, TimeZone: "Europe/Berlin"}, nil},
		{"of the site", fleet.UpdateWindow{Cron: "0 2 * * *", Duration: 23*time.Hour + 59*time.Minute, TimeZone: fleet.SiteTimeZone}, nil},
		{"malformed", fleet.UpdateWindow{Cron: "61 * * * *", Duration: time.Hour}, []string{"Windows[0].Cron"}},
		{"never opens", fleet.UpdateWindow{Cron: "0 0 30 2 *", Duration: time.Hour}, []string{"Windows[0].Cron", "never opens"}},
		{"unknown zone", fleet.UpdateWindow{Cron: "@daily", Duration: time.Hour, TimeZone: "Mars/Olympus"}, []string{"Windows[0].TimeZone"}},
		{"unknown zone and malformed", fleet.UpdateWindow{Cron: "soon", Duration: time.Hour, TimeZone: "Local"}, []string{"Windows[0].TimeZone", "Windows[0].Cron"}},
		{"a day, each day", fleet.UpdateWindow{Cron: "0 2 * * *", Duration: 24 * time.Hour}, []string{"Windows[0].Duration", "always open"}},
		{"a minute, each minute", fleet.UpdateWindow{Cron: "* * * * *", Duration: time.Minute}, []string{"always open"}},
		{"weeks, each minute", fleet.UpdateWindow{Cron: "* * * * *", Duration: 500 * time.Hour}, []string{"always open"}},
		{"each minute of working hours", fleet.UpdateWindow{Cron: "* 9-17 * * *", Duration: time.Minute}, nil},
		{"twice a day, long", fleet.UpdateWindow{Cron: "0 0,1 * * *", Duration: 2 * time.Hour}, nil},
		{"once, long", fleet.UpdateWindow{Cron: "0 0 1 1 * 2027", Duration: 9000 * time.Hour}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			j := &fleet.Job{TaskGroups: []fleet.TaskGroup{{Update: &fleet.Update{Windows: []fleet.UpdateWindow{tc.w}}}}}
			text := strings.Join(cron.Problems(j, now).Lines(), "\n")
			if len(tc.want) == 0 && text != "" {
				t.Errorf("refused: %s", text)
			}
			for _, part := range tc.want {
				if !strings.Contains(text, part) {
					t.Errorf("%q does not say %q", text, part)
				}
			}
		})
	}
}

// However many windows a job has that never close, to find that out is bounded.
func TestProblemsOfManyWindowsAreBounded(t *testing.T) {
	u := &fleet.Update{Windows: slices.Repeat([]fleet.UpdateWindow{{Cron: "* * * * *", Duration: 10 * time.Minute}}, 10)}
	j := &fleet.Job{TaskGroups: slices.Repeat([]fleet.TaskGroup{{Update: u}}, 50)}
	if ps := cron.Problems(j, time.Unix(0, 0)); len(ps) == 0 {
		t.Error("none of them is refused")
	}
}

func FuzzWindows(f *testing.F) {
	for _, s := range []string{"@daily", "0 2 * * *", "*/0 * * * *", "L W # ? * *", "1-0 * * * *", "0 0 1 1 * 2020"} {
		f.Add(s, "UTC", int64(time.Hour))
	}
	f.Add("30 1 * * *", losAngeles, int64(-1))
	now := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, spec, zone string, length int64) {
		d := min(max(time.Duration(length), time.Nanosecond), fleet.MaxDuration)
		w := fleet.UpdateWindow{Cron: spec, TimeZone: zone, Duration: d}
		s, err := cron.WindowStateAt([]fleet.UpdateWindow{w}, "", now)
		switch {
		case err != nil && s.Open:
			t.Errorf("%+v cannot be read, and is open", w)
		case err == nil && s.Open && (s.Since.After(now) || !s.Since.Add(d).After(now)):
			t.Errorf("%+v is open at %s since %s", w, now, s.Since)
		case err == nil && !s.Open && !s.Next.IsZero() && !s.Next.After(now):
			t.Errorf("%+v opens at %s, which is not after %s", w, s.Next, now)
		}
		cron.Problems(&fleet.Job{TaskGroups: []fleet.TaskGroup{{Update: &fleet.Update{Windows: []fleet.UpdateWindow{w}}}}}, now)
	})
}
