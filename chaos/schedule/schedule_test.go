package schedule_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry/chaos/schedule"
	"skerry/fleet"
	"skerry/fleet/diff"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/*.want and the table of faults anew")

func mustParse(tb testing.TB, text string) schedule.Schedule {
	tb.Helper()
	s, err := schedule.Parse("test.yaml", []byte(text))
	if err != nil {
		tb.Fatalf("%v\nin\n%s", err, text)
	}
	return s
}

// golden compares a text with a file, or writes it.
func golden(tb testing.TB, file, got string) {
	tb.Helper()
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			tb.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	if got != string(want) {
		tb.Errorf("%s (see -rewrite)\n--- got\n%s\n--- want\n%s", file, got, want)
	}
}

// TestScenarioTexts reads testdata/*.yaml: what is read is printed in the canonical
// form, or what is wrong with it is said.
func TestScenarioTexts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no texts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s, err := schedule.Parse(filepath.Base(file), src)
			got := s.String()
			if err != nil {
				got = err.Error() + "\n"
			} else if again := mustParse(t, got).String(); again != got {
				t.Errorf("the canonical text is read as another one:\n%s\n---\n%s", got, again)
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".want", got)
		})
	}
}

const small = `length: 1h
settle: 2m
hubs: 3
edges:
  - {count: 4, site: ship}
jobs:
  - {id: shop, type: service, count: 2}
`

// TestEveryKindIsReadAsItsUsageSays takes the usage of each kind for an item of a
// scenario, with every parameter that it may have.
func TestEveryKindIsReadAsItsUsageSays(t *testing.T) {
	values := map[string]string{"by": "-1h30m", "step": "wal.sync", "job": "shop", "phases": "{shortest: 2s, longest: 9s}"}
	for _, kind := range schedule.Kinds() {
		info, ok := kind.Info()
		if !ok {
			t.Fatalf("%s has no info", kind)
		}
		item, _, _ := strings.Cut(strings.Replace(kind.Usage(), "at: 5m", "at: 20m", 1), "}")
		if info.Lasting == schedule.MayLast || info.Lasting == schedule.MayStay {
			item += ", for: 10m"
		}
		for _, p := range info.Params {
			item, _, _ = strings.Cut(item, ", "+p.Name+":") // only what is needed is part of the usage
			value := orElse(values[p.Name], fmt.Sprint(p.Standard))
			if len(p.Words) > 0 {
				value = p.Words[len(p.Words)-1]
			}
			item += ", " + p.Name + ": " + value
		}
		item += "}"
		s := mustParse(t, small+"faults:\n  - "+item+"\n")
		if want := itemLine(item); len(s.Faults) != 1 || itemLine(printedFault(t, s)) != want {
			t.Errorf("%q is read as\n%s", item, s)
		}
	}
}

// printedFault is the only fault of a schedule as it is printed.
func printedFault(tb testing.TB, s schedule.Schedule) string {
	tb.Helper()
	_, item, ok := strings.Cut(s.String(), "faults:\n  - ")
	if !ok {
		tb.Fatalf("no fault in\n%s", s)
	}
	return strings.TrimSpace(item)
}

// itemLine is an item with its fields in order and its durations as they are printed.
func itemLine(item string) string {
	item = strings.NewReplacer(`"`, "", "m0s", "m", "{", "", "}", "").Replace(item)
	fields := strings.Split(item, ", ")
	slices.Sort(fields)
	return strings.Join(fields, ", ")
}

func orElse(v, otherwise string) string {
	if v == "" {
		return otherwise
	}
	return v
}

// TestEveryKindHasDefaults checks that what is left out is filled in, once.
func TestEveryKindHasDefaults(t *testing.T) {
	for _, kind := range schedule.Kinds() {
		filled := kind.Fill(schedule.Params{})
		if kind.Fill(filled) != filled {
			t.Errorf("%s: filling in twice differs: %+v", kind, filled)
		}
		info, _ := kind.Info()
		for _, p := range info.Params {
			if p.Needed || p.Standard == nil {
				continue
			}
			if filled == (schedule.Params{}) {
				t.Errorf("%s: nothing is filled in for %s", kind, p.Name)
			}
		}
		people := []schedule.Kind{
			schedule.Drain, schedule.LocalStop, schedule.LocalRestart, schedule.KeyRotate, schedule.CARotate, schedule.TokenRevoke, schedule.NodeRevoke, schedule.SiteCode,
		}
		if info.Clock&schedule.Both == 0 || info.Weight <= 0 && !slices.Contains(people, kind) || info.Doc == "" {
			t.Errorf("%s: its line of the table is not complete: %+v", kind, info)
		}
	}
	if _, ok := schedule.Kind("link-cut").Info(); ok {
		t.Error("a kind that does not exist has an info")
	}
}

func TestWanted(t *testing.T) {
	s := mustParse(t, small+`  - {id: late, type: batch, count: 3, start: 10m, run_for: 1m}
steps:
  - {at: 12m, do: scale, job: shop, count: 5}
  - {at: 14m, do: update, job: shop}
  - {at: 16m, do: touch, job: shop}
  - {at: 18m, do: stop, job: shop}
  - {at: 20m, do: run, job: shop}
  - {at: 22m, do: purge, job: shop}
  - {at: 24m, do: run, job: shop}
`)
	for _, c := range []struct {
		job  fleet.JobID
		at   time.Duration
		want string
	}{
		{"shop", 0, "2"}, {"late", 9 * time.Minute, "absent"}, {"late", 10 * time.Minute, "3"},
		{"shop", 12 * time.Minute, "5"}, {"shop", 14 * time.Minute, "5 new"}, {"shop", 16 * time.Minute, "5 new touched"},
		{"shop", 18 * time.Minute, "5 new touched stopped"}, {"shop", 20 * time.Minute, "5 new touched"},
		{"shop", 22 * time.Minute, "absent"}, {"shop", time.Hour, "5 new touched"},
	} {
		job, err := s.DesiredJob(c.job, c.at)
		if err != nil {
			t.Fatal(err)
		}
		if got := describe(job); got != c.want {
			t.Errorf("%s at %s: %s, want %s", c.job, c.at, got, c.want)
		}
	}
	if _, err := s.DesiredJob("nothing", 0); err == nil {
		t.Error("a job that does not exist is wanted")
	}
	first, _ := s.DesiredJob("shop", 0)
	updated, _ := s.DesiredJob("shop", 14*time.Minute)
	touched, _ := s.DesiredJob("shop", 16*time.Minute)
	if got := diff.GroupUpdate(first, updated, schedule.GroupName); got != diff.GroupDestructive {
		t.Errorf("update is %s", got)
	}
	if got := diff.GroupUpdate(updated, touched, schedule.GroupName); got != diff.GroupInPlace {
		t.Errorf("touch is %s", got)
	}
}

func describe(job *fleet.Job) string {
	if job == nil {
		return "absent"
	}
	words := []string{string('0' + byte(job.TaskGroups[0].Count))}
	if job.TaskGroups[0].Tasks[0].Env["VERSION"] != "" {
		words = append(words, "new")
	}
	if len(job.TaskGroups[0].Tasks[0].Actions) > 0 {
		words = append(words, "touched")
	}
	if job.Stop {
		words = append(words, "stopped")
	}
	return strings.Join(words, " ")
}

func TestTargets(t *testing.T) {
	s := mustParse(t, `length: 1h
hubs: 3
edges:
  - {count: 2, site: ship}
  - {count: 2}
faults:
  - {at: 1m, kind: cut, targets: [ship, edge-4], for: 1m}
  - {at: 3m, kind: cut, targets: [edges], for: 1m}
  - {at: 5m, kind: minority-cut, targets: [leader], for: 1m}
  - {at: 10m, kind: slow-disk, targets: [edge-1, hub-2], for: 1m}
  - {at: 20m, kind: leader-kill}
  - {at: 30m, kind: mass-rejoin, for: 1m}
  - {at: 40m, kind: majority-cut, for: 1m}
`)
	for i, want := range []string{
		"edge-1 edge-2 edge-4 |", "edge-1 edge-2 edge-3 edge-4 |", "| leader", "edge-1 | hub-2", "| leader",
		"edge-1 edge-2 edge-3 edge-4 |", "| hub-1 hub-2 hub-3",
	} {
		f := s.Faults[i]
		got := strings.TrimSpace(strings.Join(s.Topology.EdgesOf(f), " ") + " | " + strings.Join(s.Topology.HubsOf(f), " "))
		if got != want {
			t.Errorf("%s: %s, want %s", f, got, want)
		}
	}
}

func TestParseCut(t *testing.T) {
	for text, want := range map[string]string{
		"3@2h:45m":          "at 2h cut edge-3 for 45m",
		"edge-3@2h:45m":     "at 2h cut edge-3 for 45m",
		"1,2@90s:1h30m":     "at 1m30s cut edge-1 edge-2 for 1h30m",
		"ship@1d:2d":        "at 1d cut ship for 2d",
		"all@0s:10s":        "at 0s cut edges for 10s",
		"3@2h":              "at 2h cut edge-3",
		"3":                 `read the cut "3": it has no @ (EDGE@TIME:DURATION, such as 3@2h:45m)`,
		"0@2h:45m":          `read the cut "0@2h:45m": edges are 1 to 2000, not 0 (EDGE@TIME:DURATION, such as 3@2h:45m)`,
		"3@:45m":            `read the cut "3@:45m": the time must be a duration like 90s, 45m, 1h30m or 2d, not "" (EDGE@TIME:DURATION, such as 3@2h:45m)`,
		"3@2h:":             `read the cut "3@2h:": the duration must be a duration like 90s, 45m, 1h30m or 2d, not "" (EDGE@TIME:DURATION, such as 3@2h:45m)`,
		"3@2h:0s":           `read the cut "3@2h:0s": the duration must be 1s to 400d, not 0s (EDGE@TIME:DURATION, such as 3@2h:45m)`,
		"@2h:45m":           `read the cut "@2h:45m": the name of an edge must be 1 to 64 characters long: "" (EDGE@TIME:DURATION, such as 3@2h:45m)`,
		"edge 3@2h:45m":     `read the cut "edge 3@2h:45m": the name of an edge may have letters, digits, '-', '_' and '.', not ' ': "edge 3" (EDGE@TIME:DURATION, such as 3@2h:45m)`,
		"3@2h:500d":         `read the cut "3@2h:500d": the duration must be 1s to 400d, not 500d (EDGE@TIME:DURATION, such as 3@2h:45m)`,
		"3@2h:99999999999h": `read the cut "3@2h:99999999999h": the duration must be a duration like 90s, 45m, 1h30m or 2d, not "99999999999h" (EDGE@TIME:DURATION, such as 3@2h:45m)`,
	} {
		f, err := schedule.ParseFault(schedule.LinkCut, text)
		got := f.String()
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s:\n  %s\nwant\n  %s", text, got, want)
		}
	}
}

func TestParseFault(t *testing.T) {
	f, err := schedule.ParseFault(schedule.EdgeReboot, "3@2h")
	if got := f.String(); err != nil || got != "at 2h edge-reboot edge-3" {
		t.Errorf("%s, %v", got, err)
	}
	_, err = schedule.ParseFault(schedule.EdgeReboot, "3@2h:400h:3")
	if want := `read the edge-reboot "3@2h:400h:3": the duration must be a duration like 90s, 45m, 1h30m or 2d, not "400h:3" (EDGE@TIME:DURATION, such as 3@2h:45m)`; err == nil || err.Error() != want {
		t.Errorf("%v\nwant\n%s", err, want)
	}
}
