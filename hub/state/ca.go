package state

import (
	"bytes"
	"slices"
	"time"

	"skerry/fleet"
)

// CA is a certificate authority that replaced the one before it. The first one of a cluster is in Cluster. A new one
// is stored by every hub first (Stored), then it signs (SignsSince), and once every hub has a certificate of it
// (Renewed) the rotation is over (SettledAt).
type CA struct {
	Number uint64 // 1 for the cluster's first
	Cert   []byte // DER
	// Forward (DER) has the subject and the key of Cert, signed by the CA before: it leads those who know only that to
	// this one. Reverse (DER) is the CA before, signed by this one.
	Forward, Reverse []byte
	Wrapped          []byte // key (PKCS #8 DER), encrypted with the state key WrappedBy
	WrappedBy        string
	// Grace is how long after SignsSince edges get in with a certificate of the CA before.
	Grace      time.Duration
	CreatedAt  int64         // UnixNano, like the other times
	Stored     []fleet.HubID // hubs that accept certificates of this CA, durably
	SignsSince int64         // 0: not yet
	Renewed    []fleet.HubID // hubs that have a certificate of this CA
	SettledAt  int64         // 0: not yet

	CreateIndex, ModifyIndex fleet.Index
}

// CAStore begins a rotation with a new CA. It is refused (conflict) while another rotation is under way.
type CAStore struct {
	command
	CA CA
}

// CAHubStep says that a hub has stored a CA, or with Renewed that it has a certificate of it.
type CAHubStep struct {
	command
	Number  uint64
	Hub     fleet.HubID
	Renewed bool
	Now     int64
}

// MaxCAs is how many CAs of a cluster are known at once. The oldest is forgotten for a new one, once its grace is over.
const MaxCAs = 8

// CAHubGrace is how long hubs accept each other's certificates of the CA before, after all have one of the new CA. A hub
// that was just joining gets its own meanwhile.
const CAHubGrace = time.Hour

var caTable = table[CA]{
	name: "cas", key: func(r *CA) []byte { return indexKey(r.Number) }, announced: true,
	records: []record[CA]{rowRecord[CA](180)},
}

// caStore applies the command CAStore.
func (t *tx) caStore(c CAStore) Result {
	cluster := clusterTable.currentRow(t, onlyKey)
	if cluster == nil || len(c.CA.Cert) == 0 || len(c.CA.Forward) == 0 || len(c.CA.Reverse) == 0 || len(c.CA.Wrapped) == 0 {
		return refusal(fleet.CodeInvalid, "store CA %d: there is no cluster, or the CA is not complete", c.CA.Number)
	}
	known := casOf(&cluster.Cluster, slices.Collect(caTable.scanRows(t.base)))
	last := known[len(known)-1]
	if err := last.UnderWay(); err != nil {
		return Result{Err: err}
	}
	if err := t.checkStateKey(c.CA.WrappedBy); err != nil {
		return Result{Err: err}
	}
	if c.CA.Number != last.Number+1 {
		return refusal(fleet.CodeConflict, "store CA %d: the newest one is CA %d", c.CA.Number, last.Number)
	}
	if len(known) == MaxCAs {
		if end := known.GraceEnd(0); c.CA.CreatedAt <= end {
			return Result{Err: fleet.Errorf(fleet.CodeConflict, "store CA %d: the cluster has %d CAs, and edges may have certificates of CA %d until %s",
				c.CA.Number, MaxCAs, known[0].Number, time.Unix(0, end).UTC().Format(time.RFC3339)).
				WithHint("rotate again after that time")}
		}
		caTable.removeRow(t, indexKey(max(known[0].Number, 2)))
	}
	next := c.CA
	next.Stored, next.SignsSince, next.Renewed, next.SettledAt = nil, 0, nil, 0
	next.CreateIndex, next.ModifyIndex = t.index, t.index
	caTable.putRow(t, &next)
	caTable.markChanged(t)
	return Result{}
}

// UnderWay returns an error if the rotation to this CA is not over.
func (c *CA) UnderWay() *fleet.Error {
	if c.SettledAt != 0 {
		return nil
	}
	return fleet.Errorf(fleet.CodeConflict, "rotate the CA: the rotation to CA %d is still under way", c.Number).
		WithHint("it ends when every hub has a certificate of CA %d: skerry operator ca status shows which hubs are missing; remove a hub that is gone for good with skerry operator raft remove-peer", c.Number)
}

// caHubStep applies the command CAHubStep. A step that is known already may still complete the rotation, because
// hubs that were missing may have been removed.
func (t *tx) caHubStep(c CAHubStep) Result {
	old := caTable.currentRow(t, indexKey(c.Number))
	switch {
	case old == nil:
		return refusal(fleet.CodeNotFound, "record that hub %s has CA %d: there is no such CA", c.Hub, c.Number)
	case hubTable.currentRow(t, idKey(c.Hub)) == nil:
		return refusal(fleet.CodeConflict, "record that hub %s has CA %d: the cluster does not know the hub", c.Hub, c.Number)
	}
	row := *old
	row.Stored = withHub(row.Stored, c.Hub)
	if row.SignsSince == 0 && t.areAllHubs(row.Stored) {
		row.SignsSince = c.Now
	}
	if c.Renewed && row.SignsSince != 0 {
		row.Renewed = withHub(row.Renewed, c.Hub)
	}
	if row.SettledAt == 0 && row.SignsSince != 0 && t.areAllHubs(row.Renewed) {
		row.SettledAt = c.Now
	}
	if len(row.Stored) == len(old.Stored) && len(row.Renewed) == len(old.Renewed) &&
		row.SignsSince == old.SignsSince && row.SettledAt == old.SettledAt {
		return Result{}
	}
	row.ModifyIndex = t.index
	caTable.putRow(t, &row)
	caTable.markChanged(t)
	return Result{}
}

// areAllHubs reports whether a list has every hub of the cluster.
func (t *tx) areAllHubs(ids []fleet.HubID) bool {
	for h := range hubTable.scanRows(t.base) {
		if !slices.Contains(ids, h.ID) {
			return false
		}
	}
	return true
}

// withHub returns a sorted list with a hub in it.
func withHub(ids []fleet.HubID, id fleet.HubID) []fleet.HubID {
	i, found := slices.BinarySearch(ids, id)
	if found {
		return ids
	}
	return slices.Insert(slices.Clone(ids), i, id)
}

// CAs are the CAs of a cluster, the oldest first.
type CAs []*CA

// CAs returns the CAs of the cluster; none before there is a cluster.
func (v *View) CAs() CAs {
	cluster, ok := v.Cluster()
	if !ok {
		return nil
	}
	return casOf(cluster, slices.Collect(caTable.watchRows(v)))
}

// casOf returns the first CA of a cluster and those of its table. The first one is left out once the second was
// forgotten.
func casOf(c *Cluster, later []*CA) CAs {
	if len(later) > 0 && later[0].Number > 2 {
		return later
	}
	first := &CA{Number: 1, Cert: c.CACert, CreatedAt: c.CreatedAt, SignsSince: c.CreatedAt, SettledAt: c.CreatedAt}
	if first.SettledAt == 0 {
		first.SignsSince, first.SettledAt = 1, 1
	}
	return append(CAs{first}, later...)
}

// Signing returns the position of the CA that signs certificates.
func (c CAs) Signing() int {
	if last := len(c) - 1; last == 0 || c[last].SignsSince != 0 {
		return last
	}
	return len(c) - 2
}

// Newest returns the newest CA.
func (c CAs) Newest() *CA { return c[len(c)-1] }

// ForHubs returns the CAs whose hubs are accepted at a time (UnixNano), the one that signs first.
func (c CAs) ForHubs(now int64) CAs {
	i := c.Signing()
	accepted := CAs{c[i]}
	if i < len(c)-1 {
		accepted = append(accepted, c.Newest())
	}
	if i > 0 && (c[i].SettledAt == 0 || now < c[i].SettledAt+int64(CAHubGrace)) {
		accepted = append(accepted, c[i-1])
	}
	return accepted
}

// GraceEnd returns until when (UnixNano) edges get in with a certificate of the CA at a position; 0: no end is set,
// since the CA signs or will.
func (c CAs) GraceEnd(i int) int64 {
	if i >= c.Signing() {
		return 0
	}
	return c[i+1].SignsSince + int64(c[i+1].Grace)
}

// AcceptedCAs says of which CAs edges are to accept hubs. It is immutable.
type AcceptedCAs struct {
	Certs  [][]byte // DER; the first one signs
	Held   string   // fleet.AttributeCAs of an edge that has them
	Signer []byte   // subject key id of the CA that signs
}

// NumberFor returns the number of the CA with a certificate (DER) for Certificate.CA: 0 stands for the first one.
func (c CAs) NumberFor(cert []byte) uint64 {
	i := slices.IndexFunc(c, func(ca *CA) bool { return bytes.Equal(ca.Cert, cert) })
	if i < 0 || c[i].Number == 1 {
		return 0
	}
	return c[i].Number
}
