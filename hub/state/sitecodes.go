package state

import (
	"iter"
	"time"

	"skerry/fleet"
)

// SiteCodeRecord is a site code as the state has it: with the hash of its secret. A revoked code stays until it has ended,
// so that edges that were away are told.
type SiteCodeRecord struct {
	fleet.SiteCode
	Hash fleet.SiteCodeHash
}

// MaxSiteCodes bounds the codes of a cluster, with those that were revoked and have not ended.
const MaxSiteCodes = 20_000

// SiteCodeStore stores a new site code. It is refused (conflict) where another one has its id.
type SiteCodeStore struct {
	command
	Code SiteCodeRecord
}

// SiteCodeRevoke revokes a site code. It is refused (not found) where there is none of the id.
type SiteCodeRevoke struct {
	command
	ID  string
	Now time.Time
}

// SiteCodeExpire removes those of some site codes that have ended at Now.
type SiteCodeExpire struct {
	command
	IDs []string
	Now time.Time
}

var siteCodeTable = table[SiteCodeRecord]{
	name: "site_codes", key: func(r *SiteCodeRecord) []byte { return key(r.ID) }, announced: true,
	records: []record[SiteCodeRecord]{rowRecord[SiteCodeRecord](190)},
}

// siteCodeStore applies the command SiteCodeStore.
func (t *tx) siteCodeStore(c SiteCodeStore) Result {
	next := c.Code
	if next.ID == "" {
		return refusal(fleet.CodeInvalid, "store site code: it has no id")
	}
	if siteCodeTable.currentRow(t, key(next.ID)) != nil {
		return refusal(fleet.CodeConflict, "store site code %s: another one has this id", next.ID)
	}
	next.CreateIndex, next.ModifyIndex = t.index, t.index
	siteCodeTable.putRow(t, &next)
	siteCodeTable.markChanged(t)
	return Result{}
}

// siteCodeRevoke applies the command SiteCodeRevoke. A code that is revoked already stays as it is.
func (t *tx) siteCodeRevoke(c SiteCodeRevoke) Result {
	old := siteCodeTable.currentRow(t, key(c.ID))
	if old == nil {
		return refusal(fleet.CodeNotFound, "revoke site code %s: there is no such code", c.ID)
	}
	if old.RevokeTime != nil {
		return Result{}
	}
	next := *old
	next.RevokeTime, next.ModifyIndex = &c.Now, t.index
	siteCodeTable.putRow(t, &next)
	siteCodeTable.markChanged(t)
	return Result{}
}

// siteCodeExpire applies the command SiteCodeExpire.
func (t *tx) siteCodeExpire(c SiteCodeExpire) Result {
	for _, id := range c.IDs {
		if r := siteCodeTable.currentRow(t, key(id)); r != nil && !c.Now.Before(r.ExpirationTime) {
			siteCodeTable.removeRow(t, key(id))
			siteCodeTable.markChanged(t)
		}
	}
	return Result{}
}

// SiteCode returns a site code by its id; ok is false if there is none.
func (v *View) SiteCode(id string) (*SiteCodeRecord, bool) { return siteCodeTable.watchRow(v, key(id)) }

// SiteCodes iterates over the site codes by id, with those that were revoked or have ended.
func (v *View) SiteCodes() iter.Seq[*SiteCodeRecord] { return siteCodeTable.watchRows(v) }

// ExpiredSiteCodes returns the ids of the site codes that have ended at a time.
func (v *View) ExpiredSiteCodes(now time.Time) (ids []string) {
	for r := range siteCodeTable.scanRows(v.txn) {
		if !now.Before(r.ExpirationTime) {
			ids = append(ids, r.ID)
		}
	}
	return ids
}
