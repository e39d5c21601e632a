package schedule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"skerry/fleet"
)

// document is a scenario as its YAML has it.
type document struct {
	Seed         uint64        `yaml:"seed,omitempty"`
	Length       time.Duration `yaml:"length"`
	Settle       time.Duration `yaml:"settle"`
	Operations   int           `yaml:"operations,omitempty"`
	TopologyText `yaml:",inline"`
	Jobs         []jobText     `yaml:"jobs,omitempty"`
	Steps        []stepText    `yaml:"steps,omitempty"`
	Faults       []faultText   `yaml:"faults,omitempty"`
	Expect       []Expectation `yaml:"expect,omitempty"`
}

// TopologyText is a Topology as YAML has it.
type TopologyText struct {
	Hubs  int         `yaml:"hubs"`
	Edges []edgeGroup `yaml:"edges"`
	Pools []Pool      `yaml:"pools,omitempty"`
}

// edgeGroup is edges that are alike.
type edgeGroup struct {
	Count int `yaml:"count"` // 0: 1
	Edge  `yaml:",inline"`
}

// jobText is a job. The types of package fleet have no names for YAML, and have them here.
type jobText struct {
	Job        `yaml:",inline"`
	Disconnect *disconnectText `yaml:"disconnect,omitempty"`
	Restart    *restartText    `yaml:"restart,omitempty"`
	Reschedule *rescheduleText `yaml:"reschedule,omitempty"`
}

type disconnectText struct {
	LostAfter         *time.Duration `yaml:"lost_after,omitempty"`
	StopOnClientAfter *time.Duration `yaml:"stop_on_client_after,omitempty"`
	Replace           *bool          `yaml:"replace,omitempty"`
	Reconcile         string         `yaml:"reconcile,omitempty"`
}

type restartText struct {
	Attempts        int           `yaml:"attempts"`
	Interval        time.Duration `yaml:"interval"`
	Delay           time.Duration `yaml:"delay"`
	Mode            string        `yaml:"mode"`
	RenderTemplates bool          `yaml:"render_templates,omitempty"`
}

type rescheduleText struct {
	Attempts      int           `yaml:"attempts,omitempty"`
	Interval      time.Duration `yaml:"interval,omitempty"`
	Delay         time.Duration `yaml:"delay,omitempty"`
	DelayFunction string        `yaml:"delay_function,omitempty"`
	MaxDelay      time.Duration `yaml:"max_delay,omitempty"`
	Unlimited     bool          `yaml:"unlimited,omitempty"`
}

// repetition repeats a step or a fault: so many times, or until a time.
type repetition struct {
	Every time.Duration `yaml:"every,omitempty"`
	Until time.Duration `yaml:"until,omitempty"`
	Times int           `yaml:"times,omitempty"`
}

type stepText struct {
	Step       `yaml:",inline"`
	repetition `yaml:",inline"`
}

type faultText struct {
	Fault      `yaml:",inline"`
	repetition `yaml:",inline"`
}

// Topology returns the topology that the text describes.
func (t TopologyText) Topology() (Topology, error) {
	if t.Hubs < 0 || t.Hubs > MaxHubs {
		return Topology{}, fmt.Errorf("hubs are 1 to %d, not %d", MaxHubs, t.Hubs)
	}
	out := NewTopology(t.Hubs, 0)
	out.Pools = t.Pools
	for _, g := range t.Edges {
		n := orElse(g.Count, 1)
		if n < 0 || n > MaxEdges-len(out.Edges) {
			return Topology{}, fmt.Errorf("edges are 1 to %d", MaxEdges)
		}
		out = out.With(n, g.Edge)
	}
	return out, nil
}

// textOf groups edges that are alike and follow each other.
func textOf(t Topology) TopologyText {
	out := TopologyText{Hubs: len(t.Hubs), Pools: t.Pools}
	for _, e := range t.Edges {
		e.Name = ""
		if n := len(out.Edges); n > 0 && out.Edges[n-1].Edge == e {
			out.Edges[n-1].Count++
		} else {
			out.Edges = append(out.Edges, edgeGroup{1, e})
		}
	}
	return out
}

// expandTimes returns the times that a repetition means, of which the first is at.
func (r repetition) expandTimes(at time.Duration) ([]time.Duration, error) {
	if r == (repetition{}) {
		return []time.Duration{at}, nil
	}
	n := r.Times
	if r.Until != 0 && r.Every > 0 {
		n = int(min((r.Until-at)/r.Every, MaxFaults)) + 1
	}
	if r.Every <= 0 || n <= 0 || n > MaxFaults || at < 0 || at > longest || r.Until != 0 && (r.Times != 0 || r.Until < at) || r.Every > longest/time.Duration(n) {
		return nil, fmt.Errorf("a repetition is {at: 5m, every: 10m, until: 55m} or {at: 5m, every: 10m, times: 6}, at most %d times", MaxFaults)
	}
	times := make([]time.Duration, n)
	for i := range times {
		times[i] = at + time.Duration(i)*r.Every
	}
	return times, nil
}

// expandTargets replaces ranges of targets, such as edge-1..4.
func expandTargets(targets []string) ([]string, error) {
	var names []string
	for _, name := range targets {
		first, last, several := strings.Cut(name, "..")
		if !several {
			names = append(names, name)
			continue
		}
		cut := strings.LastIndexByte(first, '-') + 1
		lo, err1 := strconv.Atoi(first[cut:])
		hi, err2 := strconv.Atoi(last)
		if cut == 0 || err1 != nil || err2 != nil || lo < 1 || hi < lo || hi > MaxEdges {
			return nil, fmt.Errorf("%q is no range of targets, such as edge-1..4", name)
		}
		for n := lo; n <= hi; n++ {
			names = append(names, first[:cut]+strconv.Itoa(n))
		}
	}
	return names, nil
}

func (j jobText) toJob() Job {
	out := j.Job
	out.Disconnect, out.Restart, out.Reschedule = (*fleet.Disconnect)(j.Disconnect), (*fleet.RestartPolicy)(j.Restart), (*fleet.ReschedulePolicy)(j.Reschedule)
	return out
}

// toDocument returns the schedule as its text has it.
func (s Schedule) toDocument() document {
	d := document{
		Seed: s.Seed, Length: s.Length, Settle: s.Settle, Operations: s.Operations, TopologyText: textOf(s.Topology), Expect: s.Expect,
	}
	for _, j := range s.Jobs {
		d.Jobs = append(d.Jobs, jobText{j, (*disconnectText)(j.Disconnect), (*restartText)(j.Restart), (*rescheduleText)(j.Reschedule)})
	}
	for _, step := range s.Steps {
		d.Steps = append(d.Steps, stepText{Step: step})
	}
	for _, f := range s.Faults {
		d.Faults = append(d.Faults, faultText{Fault: f})
	}
	return d
}

// String is the schedule as a scenario, in the canonical form: what Parse makes of
// it prints the same. Items of lists have a line each, but for job files.
func (s Schedule) String() string {
	var b strings.Builder
	if s.Comment != "" {
		for line := range strings.SplitSeq(s.Comment, "\n") {
			b.WriteString(strings.TrimRight("# "+line, " ") + "\n")
		}
		b.WriteString("\n")
	}
	var root yaml.Node
	if err := root.Encode(s.toDocument()); err != nil {
		panic(fmt.Sprintf("write a schedule as YAML: %v", err)) // it has no type that YAML lacks
	}
	for _, list := range root.Content {
		for _, item := range list.Content {
			if list.Kind == yaml.SequenceNode && !slices.ContainsFunc(item.Content, func(n *yaml.Node) bool { return n.Value == "hcl" }) {
				item.Style = yaml.FlowStyle
			}
		}
	}
	out := yaml.NewEncoder(&b)
	out.SetIndent(2)
	if err := out.Encode(&root); err != nil {
		panic(fmt.Sprintf("write a schedule as YAML: %v", err)) // it goes to memory
	}
	return b.String()
}

// String is the expectation as it stands in a scenario.
func (e Expectation) String() string {
	var node yaml.Node
	if err := node.Encode(e); err != nil {
		panic(fmt.Sprintf("write an expectation as YAML: %v", err)) // it has no type that YAML lacks
	}
	node.Style = yaml.FlowStyle
	text, err := yaml.Marshal(&node)
	if err != nil {
		panic(fmt.Sprintf("write an expectation as YAML: %v", err)) // it goes to memory
	}
	return strings.TrimSpace(string(text))
}
