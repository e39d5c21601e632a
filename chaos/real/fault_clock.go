package real

import (
	"context"
	"fmt"
	"time"

	"skerry/chaos/cluster"
	"skerry/chaos/engine"
)

// MoveClock moves the wall clock of an edge; healing sets it right. Before that a task of the edge is
// restarted: the time of the new row in the journal is the evidence.
func (p platform) MoveClock(edge string, by time.Duration, _ bool) (engine.Active, error) {
	e, said := p.s.fleet.Edge(edge), ""
	a := engine.Active{
		Heal: func(ctx context.Context) error {
			soon, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			if at, err := p.journaledTime(soon, e); err == nil { // an agent that does not answer shows nothing
				if off := time.Until(at); (off-by).Abs() < by.Abs()/2+10*time.Minute && off.Abs() > by.Abs()/2 {
					said = fmt.Sprintf("%s journals at %s", edge, at.UTC().Format(time.DateTime))
				}
			}
			return e.Clock.Set(0)
		},
		Evidence: func() (uint64, string) {
			if said == "" {
				return 0, "its journal does not show it"
			}
			return 1, said
		},
	}
	return a, e.Clock.Set(by)
}

// journaledTime restarts a task of an edge and returns the time of the journal's last row.
func (p platform) journaledTime(ctx context.Context, e *cluster.Edge) (time.Time, error) {
	if err := p.s.restartTask(ctx, e, "to read its clock"); err != nil {
		return time.Time{}, err
	}
	rows, err := e.Local().History(ctx, "")
	if err != nil || len(rows) == 0 {
		return time.Now(), err
	}
	return time.Unix(0, rows[len(rows)-1].Wall), nil
}
