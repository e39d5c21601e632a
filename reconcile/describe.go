package reconcile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry/fleet"
)

// Reasons returns one line for each decision that changes something.
func (o *Output) Reasons() []string {
	var lines []string
	for _, p := range o.Place {
		lines = append(lines, "place "+p.describePlacement())
	}
	for _, l := range o.changesByVerb() {
		for _, c := range l.changes {
			if l.verb != "keep" || c.Waits() {
				lines = append(lines, l.verb+" "+c.describeChange())
			}
		}
	}
	return lines
}

// Describe returns the output as text, one line for each decision, for logs and scenarios. Kept
// allocations are only counted.
func (o *Output) Describe() string {
	var b strings.Builder
	for _, line := range o.Reasons() {
		fmt.Fprintln(&b, line)
	}
	for _, e := range o.FollowUps {
		fmt.Fprintf(&b, "follow-up %s %s at %s: %s\n", e.ID, e.TriggeredBy, e.WaitUntil.UTC().Format(time.RFC3339), e.StatusDescription)
	}
	if o.Deployment != nil {
		fmt.Fprintf(&b, "deployment %s: %s\n", o.Deployment.ID, describeDeployment(o.Deployment))
	}
	for _, u := range o.DeploymentUpdates {
		fmt.Fprintf(&b, "deployment %s is %s: %s\n", u.DeploymentID, u.Status, u.StatusDescription)
	}
	for _, id := range o.Cancel {
		fmt.Fprintf(&b, "cancel %s\n", id)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Groups)) {
		fmt.Fprintf(&b, "group %s: %s\n", name, o.Groups[name])
	}
	return b.String()
}

// describeDeployment describes a new deployment and its groups on one line.
func describeDeployment(d *fleet.Deployment) string {
	var b strings.Builder
	b.WriteString(d.StatusDescription)
	for _, name := range d.Groups() {
		s := d.TaskGroups[name]
		fmt.Fprintf(&b, "; %s total %d", name, s.DesiredTotal)
		if s.DesiredCanaries > 0 {
			fmt.Fprintf(&b, ", canaries %d", s.DesiredCanaries)
		}
	}
	return b.String()
}

// String returns the desired number, and the counts that are not zero, on one line.
func (s GroupSummary) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d desired", s.Desired)
	for _, n := range []struct {
		name string
		n    int
	}{
		{"place", s.Place}, {"stop", s.Stop}, {"lost", s.Lost}, {"unknown", s.Unknown},
		{"reconnect", s.Reconnect}, {"in-place", s.InPlace}, {"destructive", s.Destructive}, {"canary", s.Canary}, {"ignore", s.Ignore},
	} {
		if n.n > 0 {
			fmt.Fprintf(&b, ", %s %d", n.name, n.n)
		}
	}
	return b.String()
}

// verbList is one list of an Output, with the verb that describes it.
type verbList struct {
	verb    string
	changes []Change
}

// changesByVerb returns the lists of changes with their verbs.
func (o *Output) changesByVerb() []verbList {
	return []verbList{
		{"stop", o.Stops}, {"retire", o.Retired}, {"lose", o.Lost}, {"unknown", o.Unknown},
		{"reconnect", o.Reconnects}, {"update", o.InPlace}, {"keep", o.Kept},
	}
}

// describePlacement describes a placement on one line.
func (p Placement) describePlacement() string {
	var b strings.Builder
	b.WriteString(p.Name)
	if p.Node != "" {
		fmt.Fprintf(&b, " on %s", fleet.Short(p.Node))
	}
	if p.Previous != nil {
		fmt.Fprintf(&b, " after %s", fleet.Short(p.Previous.ID))
	}
	if p.Canary {
		b.WriteString(" as canary")
	}
	if p.Job != nil {
		fmt.Fprintf(&b, " version %d", p.Job.Version)
	}
	if p.Tracker != nil {
		fmt.Fprintf(&b, " attempt %d", len(p.Tracker.Events))
	}
	if p.AvoidNode != "" {
		fmt.Fprintf(&b, " not on %s", fleet.Short(p.AvoidNode))
	}
	return b.String() + ": " + p.Reason
}

// describeChange describes a change on one line.
func (c Change) describeChange() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", c.Alloc.Name, fleet.Short(c.Alloc.ID))
	if c.ClientStatus != "" && c.ClientStatus != c.Alloc.ClientStatus {
		fmt.Fprintf(&b, " (%s)", c.ClientStatus)
	}
	if c.FollowUp != "" {
		fmt.Fprintf(&b, " until %s", c.FollowUp)
	}
	if c.WithPlacement {
		b.WriteString(" when placed")
	}
	if c.Update {
		b.WriteString(" to the newest version")
	}
	return b.String() + ": " + c.Reason
}
