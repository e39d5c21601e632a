package report

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

// maxRefusals bounds how many different refusals are told apart.
const maxRefusals = 300

// refusals counts what was refused, by who refused whom and why.
type refusals map[refusal]*refusedCount

type refusal struct {
	by, from string
	code     fleet.Code
	reason   string
}

type refusedCount struct {
	refusal
	count       uint64
	first, last time.Duration
}

// countRefusal counts a refusal. Where there are too many different ones, those that are
// new are told apart by their code alone.
func (rs refusals) countRefusal(at time.Duration, r *check.Refused) {
	key := refusal{r.By, r.From, r.Code, r.Reason}
	if rs[key] == nil && len(rs) >= maxRefusals {
		key = refusal{"several", "several", r.Code, "several reasons"}
	}
	n := rs[key]
	if n == nil {
		n = &refusedCount{refusal: key, first: at}
		rs[key] = n
	}
	n.count++
	n.last = at
}

// sortedByCode has them by code, then by number.
func (rs refusals) sortedByCode() []*refusedCount {
	return slices.SortedFunc(maps.Values(rs), func(a, b *refusedCount) int {
		return cmp.Or(cmp.Compare(a.code, b.code), cmp.Compare(b.count, a.count), cmp.Compare(a.by, b.by),
			cmp.Compare(a.from, b.from), cmp.Compare(a.reason, b.reason))
	})
}
