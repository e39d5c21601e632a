package history

import (
	"errors"
	"fmt"
	"time"

	"skerry/chaos/check"
)

// Judgement is the result of judging a recorded run again with the present checkers.
type Judgement struct {
	Header   Header
	Recorded Run // the sums of its records, with the recorded outcome
	// Before are the recorded violations, Found those that the present checkers find.
	Before, Found []check.Violation
	Verdicts      []check.Verdict
	// CutShort says that the history has no End. Facts that only the end of a run shows
	// were not judged.
	CutShort bool
}

// Judge reads a history to its end and gives each record to a new Monitor with the recorded limits. A history
// without an End is no error (see Judgement.CutShort); one that cannot be read is.
func Judge(r *Reader) (Judgement, error) {
	j := Judgement{Header: r.Header()}
	m, tally := check.NewMonitor(j.Header.judgedBy()), NewTally(j.Header)
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

// judgedBy returns the limits of the run's monitor. Runs of real processes did not record theirs in older histories: their
// edges sent a heartbeat each second.
func (h Header) judgedBy() check.Limits {
	if h.Clock == Real && h.Limits == (check.Limits{}) {
		return check.Limits{TTL: time.Second}
	}
	return h.Limits
}

// Differs returns a line for each invariant of which the present checkers find another number of violations
// than were recorded.
func (j Judgement) Differs() []string {
	then := map[check.Invariant]uint64{}
	for _, v := range j.Recorded.Violations {
		then[v.Invariant] = v.Count
	}
	var lines []string
	for _, v := range j.Verdicts {
		if n := then[v.Invariant]; n != v.Broken {
			lines = append(lines, fmt.Sprintf("%s: broken %s now, %s then", v.Invariant.Slug(), formatTimes(v.Broken), formatTimes(n)))
		}
	}
	return lines
}

// formatTimes returns "once" for 1 and else "N formatTimes".
func formatTimes(n uint64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
