package cron_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"pgregory.net/rapid"

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
		{"each second of some minutes, at one hour", fleet.Periodic{Spec: "0,10,20,30-59 * 3 * * * *"}, "1s apart"},
		{"each second after an hour", fleet.Periodic{Spec: "0-59 59 23 31 12 * *"}, "1s apart"},
		{"over the end of a minute", fleet.Periodic{Spec: "5,55 * * * * * *"}, ""},
		{"close over the end of a minute", fleet.Periodic{Spec: "4,55 * * * * * *"}, "9s apart"},
		{"far apart in minutes that do not follow", fleet.Periodic{Spec: "0,55 */2 * * * * *"}, ""},
		{"close over the end of an hour", fleet.Periodic{Spec: "0,55 0,59 3,4 * * * *"}, "5s apart"},
		{"far apart in hours that do not follow", fleet.Periodic{Spec: "0,55 0,59 3,5 * * * *"}, ""},
		{"close over midnight", fleet.Periodic{Spec: "0,55 0,59 0,23 * * 1,2 *"}, "5s apart"},
		{"far apart on days that do not follow", fleet.Periodic{Spec: "0,55 0,59 0,23 * * 1,3 *"}, ""},
		{"close together on a rare day", fleet.Periodic{Specs: []string{"0 0 12 29 2 * *", "5 0 12 * * 1 *"}}, "5s apart"},
		{"close together over midnight", fleet.Periodic{Specs: []string{"3 0 0 * * 2 *", "58 59 23 * * 1 *"}}, "5s apart"},
		{"on different days", fleet.Periodic{Specs: []string{"0 0 12 * * 1 *", "5 0 12 * * 2 *"}}, ""},
		{"at the same time", fleet.Periodic{Specs: []string{"0 12 * * *", "0 */6 * * *"}}, ""},
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

// TestCheckAgainstTheClock compares what Check says of launches that follow each other too fast with all launches of nine
// days, by what the expressions were made of.
func TestCheckAgainstTheClock(t *testing.T) {
	now := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	type fields struct{ seconds, minutes, hours, weekdays []int }
	list := func(t *rapid.T, most int, from ...int) []int {
		return slices.Sorted(slices.Values(rapid.SliceOfNDistinct(rapid.SampledFrom(from), 1, most, rapid.ID[int]).Draw(t, "field")))
	}
	text := func(numbers []int) string {
		return strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", ","), "[]")
	}
	rapid.Check(t, func(t *rapid.T) {
		var p fleet.Periodic
		var launches []int // seconds since now
		for range rapid.IntRange(1, 3).Draw(t, "expressions") {
			f := fields{
				list(t, 3, 0, 3, 7, 10, 13, 25, 49, 52, 55, 59), list(t, 2, 0, 1, 2, 30, 58, 59),
				list(t, 2, 0, 1, 12, 22, 23), list(t, 2, 0, 1, 2, 3, 4, 5, 6),
			}
			p.Specs = append(p.Specs, fmt.Sprintf("%s %s %s * * %s *", text(f.seconds), text(f.minutes), text(f.hours), text(f.weekdays)))
			for day := range 9 {
				if !slices.Contains(f.weekdays, int(now.AddDate(0, 0, day).Weekday())) {
					continue
				}
				for _, h := range f.hours {
					for _, m := range f.minutes {
						for _, s := range f.seconds {
							launches = append(launches, ((24*day+h)*60+m)*60+s)
						}
					}
				}
			}
		}
		slices.Sort(launches)
		launches = slices.Compact(launches)
		gap := 10
		for i := range launches[1:] {
			gap = min(gap, launches[i+1]-launches[i])
		}
		if err := cron.Check(p, now); (err != nil) != (gap < 10) || err != nil && !strings.Contains(err.Error(), "s apart") {
			t.Fatalf("%q: %v, the smallest gap is %d s", p.Specs, err, gap)
		}
	})
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
