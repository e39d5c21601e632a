package history

import (
	"errors"
	"fmt"

	"skerry/chaos/check"
)

// Judgement is what today's checkers make of a run that was written down.
type Judgement struct {
	Header   Header
	Recorded Run // as it was summed up then
	// Before are the violations that were seen then, Found those that are seen now.
	Before, Found []check.Violation
	Verdicts      []check.Verdict
	// CutShort says that the history has no end: what only the end of a run shows was
	// not judged.
	CutShort bool
}

// Judge has a Monitor judge a history again, to its end. The search for a
// linearization is bounded in wall time, as it was when the run was made.
func Judge(r *Reader) (Judgement, error) {
	j := Judgement{Header: r.Header()}
	m, tally := check.NewMonitor(j.Header.Limits), NewTally(j.Header)
	err := r.ForEach(func(rec *Record) error {
		tally.Add(*rec)
		switch {
		case rec.Picture != nil && rec.Picture.Final:
			m.Finish(rec.At, rec.Picture.FleetSnapshot)
		case rec.Picture != nil:
			m.Quiet(rec.At, rec.Picture.FleetSnapshot)
		case rec.Violation != nil:
			j.Before = append(j.Before, *rec.Violation)
		case rec.observationCount() > 0:
			m.Observe(rec.Observation)
		}
		return nil
	})
	if j.CutShort = errors.Is(err, ErrCutShort); err != nil && !j.CutShort {
		return Judgement{}, fmt.Errorf("judge %s: %w", j.Header.Name, err)
	}
	j.Recorded = tally.Run()
	j.Found, j.Verdicts = m.Violations(), m.Verdicts()
	return j, nil
}

// Differs says, one line for each invariant, where the checkers of today come to
// another number of violations than those of then did.
func (j Judgement) Differs() []string {
	then := map[check.Invariant]uint64{}
	for _, v := range j.Recorded.Violations {
		then[v.Invariant] = v.Count
	}
	var lines []string
	for _, v := range j.Verdicts {
		if n := then[v.Invariant]; n != v.Broken {
			lines = append(lines, fmt.Sprintf("%s: broken %s now, %s then", v.Invariant.Slug(), times(v.Broken), times(n)))
		}
	}
	return lines
}

func times(n uint64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
