package state

import (
	"reflect"
	"time"
)

// clockRow has the newest time that an applied command had (UnixNano). It never goes back.
type clockRow struct{ Newest int64 }

var clockTable = table[clockRow]{
	name: "clock", key: onlyRow[clockRow], records: []record[clockRow]{rowRecord[clockRow](205)},
}

// noteTime keeps the time of a command, if it is the newest.
func (t *tx) noteTime(made int64) {
	if row := clockTable.currentRow(t, onlyKey); made > 0 && (row == nil || made > row.Newest) {
		clockTable.putRow(t, &clockRow{Newest: made})
	}
}

// LatestTime returns the later of a hub's clock and of the newest time that an applied command had. Whatever the hubs have
// given an end to ends by it: a hub that starts again with a clock that went back revives nothing. The time is not watched.
func (v *View) LatestTime(clock time.Time) time.Time {
	if row := clockTable.indexedRow(v.txn, indexID, onlyKey); row != nil && row.Newest > clock.UnixNano() {
		return time.Unix(0, row.Newest).UTC()
	}
	return clock
}

// timeOf returns when a command was made (UnixNano): its field Now, or when the object was made that it stores; 0: it does
// not say.
func (c commandType) timeOf(cmd Command) int64 {
	var at any
	switch cmd := cmd.(type) {
	case ACLBootstrap:
		at = cmd.Token.CreateTime
	case ACLTokenStore:
		at = cmd.Token.CreateTime
	case SiteCodeStore:
		at = cmd.Code.CreateTime
	case Token:
		at = cmd.Token.CreatedAt
	default:
		if c.now == nil {
			return 0
		}
		at = reflect.ValueOf(cmd).FieldByIndex(c.now).Interface()
	}
	switch at := at.(type) {
	case int64:
		return at
	case time.Time:
		if !at.IsZero() {
			return at.UnixNano()
		}
	}
	return 0
}

// fieldNow returns where a type of commands has its field Now; nil: it has none.
func fieldNow(of reflect.Type) []int {
	if f, ok := of.FieldByName("Now"); ok {
		return f.Index
	}
	return nil
}
