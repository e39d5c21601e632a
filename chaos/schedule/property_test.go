package schedule_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"skerry/chaos/schedule"
	"skerry/fleet"
)

func drawShape(t *rapid.T) schedule.Shape {
	return schedule.Shape{
		Hubs:          rapid.IntRange(1, 5).Draw(t, "hubs"),
		Edges:         rapid.IntRange(1, 20).Draw(t, "edges"),
		Length:        time.Duration(rapid.IntRange(1, 7200).Draw(t, "length")) * time.Second,
		FaultsPerHour: rapid.IntRange(1, 120).Draw(t, "faults"),
		Jobs:          rapid.IntRange(1, 10).Draw(t, "jobs"),
		Kinds:         rapid.SliceOfN(rapid.SampledFrom(schedule.Kinds()), 1, 30).Draw(t, "kinds"),
	}
}

// TestDrawnSchedulesAreValid also checks that they are read as they are printed, and
// come out the same again.
func TestDrawnSchedulesAreValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed, shape := rapid.Uint64().Draw(t, "seed"), drawShape(t)
		s := schedule.Draw(seed, shape)
		if err := s.Validate().Err(); err != nil {
			t.Fatalf("%v\nin\n%s", err, s)
		}
		for _, f := range s.Faults {
			if !slices.Contains(shape.Kinds, f.Kind) {
				t.Fatalf("%s was not asked for", f)
			}
		}
		for _, j := range s.Jobs {
			fits := func(e schedule.Edge) bool {
				return (j.Pool == fleet.AllPools || j.Pool == e.Pool) && (j.Site == "" || j.Site == e.Site)
			}
			edges := 0
			for _, e := range s.Topology.Edges {
				if fits(e) {
					edges++
				}
			}
			if edges == 0 {
				t.Fatalf("no edge may run job %s\nin\n%s", j.ID, s)
			}
			if claims := j.Port > 0 || j.Cores > 0 || j.Devices > 0; claims && 2*j.Count > edges {
				t.Fatalf("job %s may lack room: it claims what few have\nin\n%s", j.ID, s)
			}
		}
		back, err := schedule.Parse("drawn.yaml", []byte(s.String()))
		if err != nil {
			t.Fatalf("%v\nin\n%s", err, s)
		}
		if !reflect.DeepEqual(s, back) {
			t.Fatalf("read back:\n%s\nwas:\n%s\n%+v\n%+v", back, s, back, s)
		}
		if again := schedule.Draw(seed, shape).String(); again != s.String() {
			t.Fatalf("drawn again:\n%s\nwas:\n%s", again, s)
		}
	})
}

// TestDrawnFaultsAreManyAndOfAllKinds checks what a run of many seeds relies on, with
// the shape that it has.
func TestDrawnFaultsAreManyAndOfAllKinds(t *testing.T) {
	const seeds = 50
	kinds := map[schedule.Kind]int{}
	beside, faults := 0, 0
	for seed := range uint64(seeds) {
		s := schedule.Draw(seed, schedule.Shape{})
		if n := len(s.Faults); n < 20 {
			t.Errorf("seed %d: %d faults in an hour", seed, n)
		}
		quarters := map[time.Duration]int{}
		for i, f := range s.Faults {
			kinds[f.Kind]++
			faults++
			quarters[min(3, f.At/(15*time.Minute))]++
			if slices.ContainsFunc(s.Faults[:i], func(o schedule.Fault) bool { return o.At <= f.At && f.At < o.End(s.Length) }) {
				beside++
			}
		}
		if len(quarters) < 4 {
			t.Errorf("seed %d: a quarter of an hour without a fault: %v", seed, quarters)
		}
	}
	for _, kind := range schedule.Kinds() {
		if info, _ := kind.Info(); info.Clock&schedule.Virtual != 0 && kinds[kind] < seeds/10 {
			t.Errorf("%s was drawn %d times in %d seeds", kind, kinds[kind], seeds)
		}
	}
	if beside*3 < faults {
		t.Errorf("%d of %d faults begin while another lasts: that is few", beside, faults)
	}
}

// TestDrawnJobsClaimResources checks that jobs of many seeds have ports, cores, devices and a max_run_duration, so that
// the checkers of these see some.
func TestDrawnJobsClaimResources(t *testing.T) {
	requireDrawnJobs(t, map[string]func(j schedule.Job) bool{
		"dynamic ports":    func(j schedule.Job) bool { return j.Ports > 0 },
		"a static port":    func(j schedule.Job) bool { return j.Port > 0 },
		"cores":            func(j schedule.Job) bool { return j.Cores > 0 },
		"devices":          func(j schedule.Job) bool { return j.Devices > 0 },
		"max_run_duration": func(j schedule.Job) bool { return j.MaxRun > 0 },
	})
}

// TestDrawnBatchJobs checks that tasks of batch jobs end with success and with an error, and that hubs launch periodic jobs,
// with prohibit_overlap and without it.
func TestDrawnBatchJobs(t *testing.T) {
	ends := func(j schedule.Job) bool { return j.Type == fleet.JobTypeBatch && j.Every == 0 && j.Task.RunFor > 0 }
	launched := func(j schedule.Job) bool { return j.Type == fleet.JobTypeBatch && j.Every > 0 && !j.AtEdge }
	requireDrawnJobs(t, map[string]func(j schedule.Job) bool{
		"a task that succeeds":                 func(j schedule.Job) bool { return ends(j) && j.Task.ExitCode == 0 },
		"a task that fails":                    func(j schedule.Job) bool { return ends(j) && j.Task.ExitCode != 0 },
		"launches by hubs":                     func(j schedule.Job) bool { return launched(j) && !j.NoOverlap },
		"launches by hubs that do not overlap": func(j schedule.Job) bool { return launched(j) && j.NoOverlap },
	})
}

// requireDrawnJobs wants each property to be one of at least every tenth seed's jobs.
func requireDrawnJobs(t *testing.T, properties map[string]func(j schedule.Job) bool) {
	t.Helper()
	const seeds = 50
	drawn := map[string]int{}
	for seed := range uint64(seeds) {
		for _, j := range schedule.Draw(seed, schedule.Shape{}).Jobs {
			for property, has := range properties {
				drawn[property] += count(has(j))
			}
		}
	}
	for property := range properties {
		if drawn[property] < seeds/10 {
			t.Errorf("%s: drawn for %d jobs in %d seeds", property, drawn[property], seeds)
		}
	}
	t.Log(drawn)
}

// TestOverlapRules holds Validate against a model that looks at every moment: what is
// forbidden at some moment is refused, and nothing else is.
func TestOverlapRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := schedule.Schedule{Length: 30 * time.Minute, Topology: schedule.NewTopology(rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "hubs"), 3)}
		for range rapid.IntRange(2, 5).Draw(t, "faults") {
			s.Faults = append(s.Faults, drawFault(t, s))
		}
		slices.SortStableFunc(s.Faults, func(a, b schedule.Fault) int { return int(a.At - b.At) })
		problems := s.Validate()
		if want := findModelConflict(s); want != "" != (len(problems) > 0) {
			t.Fatalf("%s\nmodel: %q\nValidate: %v", s, want, problems.Err())
		}
	})
}

// drawFault draws a fault that is valid by itself.
func drawFault(t *rapid.T, s schedule.Schedule) schedule.Fault {
	kind := rapid.SampledFrom(schedule.Kinds()).Draw(t, "kind")
	info, _ := kind.Info()
	f := schedule.Fault{Kind: kind, Params: kind.Fill(schedule.Params{Jump: time.Hour, Profile: schedule.Lossy})}
	f.Params = kind.Fill(keepOwnParams(kind, f.Params))
	f.At = time.Duration(rapid.IntRange(10, 15).Draw(t, "at")) * time.Minute
	if info.Lasting != schedule.Instant {
		f.For = time.Duration(rapid.IntRange(1, 3).Draw(t, "for")) * time.Minute
	}
	var names []string
	if info.At == schedule.AtEdge || info.At == schedule.AtMember {
		names = append(names, "edge-1", "edge-2", "edge-3")
	}
	if info.At == schedule.AtHub || info.At == schedule.AtMember {
		names = append(names, schedule.TargetLeader)
		names = append(names, s.Topology.Hubs...)
	}
	if len(names) > 0 {
		f.Targets = rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, orMost(info.Most), rapid.ID[string]).Draw(t, "targets")
	}
	return f
}

func orMost(n int) int {
	if n == 0 {
		return 2
	}
	return n
}

// keepOwnParams leaves only parameters that the kind takes.
func keepOwnParams(kind schedule.Kind, p schedule.Params) schedule.Params {
	if kind != schedule.ClockJump {
		p.Jump = 0
	}
	if kind != schedule.LinkProfile {
		p.Profile = ""
	}
	return p
}

// findModelConflict is the model: it looks at each half minute, and at all pairs and sums.
func findModelConflict(s schedule.Schedule) string {
	for now := time.Duration(0); now <= s.Length+time.Hour; now += 10 * time.Second {
		hubs := 0
		for i, f := range s.Faults {
			if !isActiveAt(s, f, now) {
				continue
			}
			hubs += len(hubsTaken(s, f))
			for _, other := range s.Faults[:i] {
				if isActiveAt(s, other, now) && conflictAt(s, f, other, now) {
					return f.String() + " and " + other.String()
				}
			}
		}
		if hubs > s.Topology.Minority() {
			return "too many hubs"
		}
	}
	return ""
}

func isActiveAt(s schedule.Schedule, f schedule.Fault, now time.Duration) bool {
	info, _ := f.Kind.Info()
	return f.At <= now && now < f.End(s.Length)+info.After
}

func hubsTaken(s schedule.Schedule, f schedule.Fault) []string {
	if info, _ := f.Kind.Info(); slices.Contains(info.Takes, schedule.ClaimHubs) {
		return nil
	}
	return s.Topology.HubsOf(f)
}

// conflictAt reports whether the two may not be, at this moment.
func conflictAt(s schedule.Schedule, a, b schedule.Fault, now time.Duration) bool {
	ai, _ := a.Kind.Info()
	bi, _ := b.Kind.Info()
	if slices.Contains(ai.Apart, b.Kind) || slices.Contains(bi.Apart, a.Kind) {
		return true
	}
	all := func(i schedule.Info) bool { return slices.Contains(i.Takes, schedule.ClaimHubs) }
	if all(ai) && (all(bi) || len(hubsTaken(s, b)) > 0) || all(bi) && len(hubsTaken(s, a)) > 0 {
		return true
	}
	for _, h := range hubsTaken(s, a) {
		if h != schedule.TargetLeader && slices.Contains(hubsTaken(s, b), h) {
			return true
		}
	}
	for _, edge := range s.Topology.EdgesOf(a) {
		if slices.Contains(s.Topology.EdgesOf(b), edge) {
			for _, c := range claimsAt(a, now) {
				if slices.Contains(claimsAt(b, now), c) {
					return true
				}
			}
		}
	}
	return false
}

// claimsAt is what a fault has of its edges at a moment at which it holds.
func claimsAt(f schedule.Fault, now time.Duration) []schedule.Claim {
	info, _ := f.Kind.Info()
	var cs []schedule.Claim
	for _, c := range info.Takes {
		if c != schedule.ClaimHub && c != schedule.ClaimHubs {
			cs = append(cs, c)
		}
	}
	if now < f.At+info.After {
		cs = append(cs, info.Begins...)
	}
	return cs
}

// TestScenarios reads those that the harness brings.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("../scenarios/*.yaml")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d scenarios: %v", len(files), err)
	}
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := schedule.Parse(filepath.Base(file), src)
		if err != nil {
			t.Error(err)
			continue
		}
		if s.Comment == "" || !bytes.HasPrefix(src, []byte("# ")) {
			t.Errorf("%s: its first lines do not say why it is there", file)
		}
		if len(s.Expect) < 2 || s.Length > 2*time.Hour {
			t.Errorf("%s: %d expectations, %s long", file, len(s.Expect), s.Length)
		}
		if again := mustParse(t, s.String()); again.String() != s.String() {
			t.Errorf("%s: the canonical text is read as another one", file)
		}
	}
}
