package check

import (
	"time"

	"skerry/fleet"
)

// ledger knows when each entry was applied first. Hubs that were put back apply what
// their copy of the log holds again, all of it in a moment and long after it was
// decided.
type ledger struct {
	since map[logged]time.Duration
	order []logged
}

// logged names an entry. Number and term alone do not: hubs that were put back give
// them again.
type logged struct {
	index   fleet.Index
	term    uint64
	command string
}

// keptLogged bounds how many entries are known; the oldest go.
const keptLogged = 4 * keptEntries

func newLedger() ledger { return ledger{since: map[logged]time.Duration{}} }

// firstAppliedAt is when an entry that is applied now was applied first.
func (l *ledger) firstAppliedAt(a *Applied, now time.Duration) time.Duration {
	e := logged{a.Index, a.Term, a.Command}
	if at, again := l.since[e]; again {
		return at
	}
	l.since[e] = now
	if l.order = append(l.order, e); len(l.order) > keptLogged {
		delete(l.since, l.order[0])
		l.order = l.order[1:]
	}
	return now
}
