package rehearse

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"skerry/drivers/sim"
	"skerry/fleet"
)

// Notes say what of the rehearsal was real and what was not, for people.
func (c Config) Notes() []string {
	real := slices.DeleteFunc(c.drivers(), func(d string) bool { return d == sim.Name })
	notes := []string{"Real: hubs, edges, QUIC, journals, placement, absence rules, restarts, reschedules. Simulated: network, machines, clocks, time."}
	if len(real) > 0 {
		notes = append(notes, fmt.Sprintf("Tasks of %s were not run: a simulated one takes the place of each, and %s.",
			strings.Join(real, ", "), c.behaviour()))
	}
	return notes
}

// behaviour is how the simulated tasks behave.
func (c Config) behaviour() string {
	var parts []string
	for _, t := range []struct{ jobType, does string }{
		{fleet.JobTypeService, "runs until it is stopped"},
		{fleet.JobTypeBatch, fmt.Sprintf("runs for %s and succeeds", cmp.Or(c.Tasks.Run, DefaultRun))},
	} {
		if slices.ContainsFunc(c.Jobs, func(j *fleet.Job) bool { return j.Type == t.jobType }) {
			parts = append(parts, fmt.Sprintf("that of a %s %s", t.jobType, t.does))
		}
	}
	return strings.Join(parts, ", ")
}
