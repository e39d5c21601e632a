package schedule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// document is the YAML form of a schedule.
type document struct {
	Schedule `yaml:",inline"`
	Steps    []timed[Step]  `yaml:"steps,omitempty"`
	Faults   []timed[Fault] `yaml:"faults,omitempty"`
	Expect   []Expectation  `yaml:"expect,omitempty"`
}

// timed is a step or a fault in YAML, with an optional repetition.
type timed[T any] struct {
	Item       T `yaml:",inline"`
	repetition `yaml:",inline"`
}

// repetition repeats a step or a fault Every interval: Times times, or up to the time Until.
type repetition struct {
	Every time.Duration `yaml:"every,omitempty"`
	Until time.Duration `yaml:"until,omitempty"`
	Times int           `yaml:"times,omitempty"`
}

// edgeGroup is a number of consecutive edges with the same attributes.
type edgeGroup struct {
	Count int `yaml:"count"` // 0: 1
	Edge  `yaml:",inline"`
}

// UnmarshalYAML reads the number of hubs and sets h to their names.
func (h *HubNames) UnmarshalYAML(decode func(any) error) error {
	var n int
	if err := decode(&n); err != nil {
		return err
	}
	if n < 0 || n > MaxHubs {
		return fmt.Errorf("hubs are 1 to %d, not %d", MaxHubs, n)
	}
	*h = NewTopology(n, 0).Hubs
	return nil
}

// MarshalYAML returns the number of hubs.
func (h HubNames) MarshalYAML() (any, error) { return len(h), nil }

// UnmarshalYAML reads groups of edges and sets es to the single, numbered edges.
func (es *Edges) UnmarshalYAML(decode func(any) error) error {
	var groups []edgeGroup
	if err := decode(&groups); err != nil {
		return err
	}
	var t Topology
	for _, g := range groups {
		n := orElse(g.Count, 1)
		if n < 0 || n > MaxEdges-len(t.Edges) {
			return fmt.Errorf("edges are 1 to %d", MaxEdges)
		}
		t = t.With(n, g.Edge)
	}
	*es = t.Edges
	return nil
}

// MarshalYAML returns groups of consecutive edges with the same attributes.
func (es Edges) MarshalYAML() (any, error) {
	var groups []edgeGroup
	for _, e := range es {
		e.Name = ""
		if n := len(groups); n > 0 && groups[n-1].Edge == e {
			groups[n-1].Count++
		} else {
			groups = append(groups, edgeGroup{1, e})
		}
	}
	return groups, nil
}

// expandTimes returns the times of all repetitions, of which the first is at. An empty
// repetition has only that one. It returns an error if the repetition is invalid.
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

// expandTargets replaces ranges of targets, such as edge-1..4, by the names of their members.
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

// String formats the schedule as YAML that Parse reads. The form is canonical: parsing and
// printing it again gives the same text. List items take one line each, except jobs with HCL.
func (s Schedule) String() string {
	var b strings.Builder
	if s.Comment != "" {
		for line := range strings.SplitSeq(s.Comment, "\n") {
			b.WriteString(strings.TrimRight("# "+line, " ") + "\n")
		}
		b.WriteString("\n")
	}
	d := document{Schedule: s, Expect: s.Expect}
	for _, step := range s.Steps {
		d.Steps = append(d.Steps, timed[Step]{Item: step})
	}
	for _, f := range s.Faults {
		d.Faults = append(d.Faults, timed[Fault]{Item: f})
	}
	var root yaml.Node
	if err := root.Encode(d); err != nil {
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

// String formats the expectation as one line of YAML, as in a scenario.
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
