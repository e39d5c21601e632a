package cron_test

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"skerry/fleet"
	"skerry/fleet/cron"
)

const losAngeles = "America/Los_Angeles"

func mustIn(tb testing.TB, zone, at string) time.Time {
	tb.Helper()
	where, err := time.LoadLocation(zone)
	if err != nil {
		tb.Fatal(err)
	}
	t, err := time.ParseInLocation("2006-01-02 15:04", at, where)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// TestNext is row H11, and what else a periodic block may say.
func TestNext(t *testing.T) {
	for _, tc := range []struct {
		row   string
		zone  string
		specs []string
		from  string // in zone
		want  []string
	}{
		{"H11 the day before spring", losAngeles, []string{"0 2 * * *"}, "2017-03-11 01:00", []string{"2017-03-11 10:00"}},
		{"H11 02:00 does not exist that day", losAngeles, []string{"0 2 * * *"}, "2017-03-12 01:00", []string{"2017-03-13 09:00"}},
		{"H11 inside the skipped hour", losAngeles, []string{"30 2 * * *"}, "2019-03-09 03:00", []string{"2019-03-11 09:30", "2019-03-12 09:30"}},
		{"H11 inside the repeated hour", losAngeles, []string{"30 1 * * *"}, "2019-11-02 02:00",
			[]string{"2019-11-03 08:30", "2019-11-03 09:30", "2019-11-04 09:30"}},
		{"H11 outside the changed hour", losAngeles, []string{"0 5 * * *"}, "2019-03-09 12:00", []string{"2019-03-10 12:00", "2019-03-11 12:00"}},
		{"several expressions, the first one counts", "UTC", []string{"0 6 * * *", "0 18 * * *", "30 6 1 * *"}, "2026-01-31 12:00",
			[]string{"2026-01-31 18:00", "2026-02-01 06:00", "2026-02-01 06:30", "2026-02-01 18:00"}},
		{"a time zone", "Europe/Berlin", []string{"0 0 * * *"}, "2026-07-01 12:00", []string{"2026-07-01 22:00"}},
		{"no time zone is UTC", "", []string{"@daily"}, "2026-07-01 12:00", []string{"2026-07-02 00:00"}},
	} {
		t.Run(tc.row, func(t *testing.T) {
			p := fleet.Periodic{Specs: tc.specs, TimeZone: tc.zone}
			at := mustIn(t, tc.zone, tc.from)
			for _, want := range tc.want {
				next, err := cron.Next(p, at)
				if err != nil {
					t.Fatal(err)
				}
				if got := next.UTC().Format("2006-01-02 15:04"); got != want {
					t.Fatalf("after %s comes %s, want %s", at, got, want)
				}
				at = next
			}
		})
	}
}

func TestCheck(t *testing.T) {
	now := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name string
		p    fleet.Periodic
		says string // "": it is right
	}{
		{"right", fleet.Periodic{Spec: "*/15 * * * * *"}, ""},
		{"no expression", fleet.Periodic{}, "no cron expression"},
		{"malformed", fleet.Periodic{Spec: "every day"}, `"every day"`},
		{"the second is malformed", fleet.Periodic{Specs: []string{"@daily", "61 * * * *"}}, `"61 * * * *"`},
		{"never launches", fleet.Periodic{Spec: "0 0 30 2 *"}, "never launches"},
		{"has been", fleet.Periodic{Spec: "0 0 1 1 * 2020"}, "never launches"},
		{"unknown zone", fleet.Periodic{Spec: "@daily", TimeZone: "Mars/Olympus"}, "time zone"},
		{"the hub's own zone", fleet.Periodic{Spec: "@daily", TimeZone: "Local"}, "time zone"},
		{"unknown type", fleet.Periodic{Spec: "@daily", SpecType: "moon"}, `"moon"`},
		{"every second", fleet.Periodic{Spec: "* * * * * * *"}, "1s apart, at least 10s are needed"},
		{"every ten seconds", fleet.Periodic{Spec: "*/10 * * * * * *"}, ""},
		{"five seconds apart together", fleet.Periodic{Specs: []string{"0 * * * * * *", "5 * * * * * *"}}, "5s apart"},
		{"huge", fleet.Periodic{Spec: strings.Repeat("* ", 1<<16)}, "131072 bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := cron.Check(tc.p, now)
			if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says) || fleet.CodeOf(err) != fleet.CodeInvalid) {
				t.Errorf("%v, want %q", err, tc.says)
			}
		})
	}
}

func FuzzNext(f *testing.F) {
	for _, s := range []string{"@daily", "0 2 * * *", "*/0 * * * *", "L W # ? * *", "0 0 L * 5#3", "-1 * * * *", "1-0 * * * *"} {
		f.Add(s, "UTC")
	}
	f.Add("30 1 * * *", losAngeles)
	from := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, spec, zone string) {
		at, err := cron.Next(fleet.Periodic{Spec: spec, TimeZone: zone}, from)
		if err == nil && !at.IsZero() && !at.After(from) {
			t.Errorf("%q comes at %s, which is not after %s", spec, at, from)
		}
	})
}
