package sitecodes

import (
	"context"
	"fmt"
	"time"

	"skerry/fleet"
	"skerry/internal/codec"
	"skerry/internal/sitecode"
	"skerry/syncproto"
)

const (
	// freeTries is how many wrong tries in a row cost no pause.
	freeTries = 5
	// firstPause is the pause after one more, and longestPause what it doubles to.
	firstPause   = time.Minute
	longestPause = 24 * time.Hour
	// unknownID stands for all codes that the edge does not have. No code has this id.
	unknownID = "-"
)

// tries are the wrong tries of a code since the last right one. Until is by TimeFloor, which no wall clock changes.
type tries struct {
	Wrong int   `cbor:"1,keyasint"`
	Until int64 `cbor:"2,keyasint,omitempty"` // UnixNano; no try counts before
}

// triesRecord has all tries in the journal, before it is encrypted.
type triesRecord struct {
	Version int              `cbor:"1,keyasint"`
	Tries   map[string]tries `cbor:"2,keyasint"`
}

// pauseAfter returns the pause after so many wrong tries in a row.
func pauseAfter(wrong int) time.Duration {
	if wrong <= freeTries {
		return 0
	}
	pause := firstPause
	for range wrong - freeTries - 1 {
		if pause *= 2; pause >= longestPause {
			return longestPause
		}
	}
	return pause
}

// Check returns the code that a person gives, with its name and what it allows. CodeForbidden: it is wrong, was revoked, has
// ended, or has to wait after wrong tries, which is no try (tried). d.ID is that of a known code also then. A try is
// journaled before it is answered, so that no restart makes it free.
func (k *Keeper) Check(ctx context.Context, text string) (d syncproto.DeliveredSiteCode, tried bool, err error) {
	id, secret, err := sitecode.Parse(text)
	if err != nil {
		return d, false, err
	}
	select {
	case k.changing <- struct{}{}: // one at a time: a check costs time on a small board
	case <-ctx.Done():
		return d, false, ctx.Err()
	}
	defer func() { <-k.changing }()
	d, known := k.findCode(id)
	if !known {
		d = k.standIn()
	}
	floor := k.cfg.Journal.TimeFloor()
	before := k.tries[d.ID]
	if left := time.Duration(before.Until - floor); left > 0 {
		return named(d), false, fleet.Errorf(fleet.CodeForbidden, "check the site code: after %d wrong tries it has to wait for another %s", before.Wrong, left.Round(time.Second)).
			WithHint("the pause goes on while this machine runs; another code works meanwhile")
	}
	after := tries{Wrong: before.Wrong + 1}
	if pause := pauseAfter(after.Wrong); pause > 0 {
		after.Until = floor + int64(pause)
	}
	if err := k.recordTries(ctx, d.ID, after); err != nil {
		return named(d), false, err
	}
	if right := sitecode.Matches(secret, hashOf(&d)); !right || !known {
		return named(d), true, fleet.Errorf(fleet.CodeForbidden, "check the site code: it is wrong, was revoked, or is for another site").
			WithHint("a hub that has created a code since must first have had a link to this edge")
	}
	if err := k.recordTries(ctx, d.ID, tries{}); err != nil {
		return named(d), true, err
	}
	if end := time.Unix(d.Expires, 0); !k.latestTime().Before(end) {
		return named(d), true, fleet.Errorf(fleet.CodeForbidden, "check the site code: it ended at %s", end.UTC().Format(time.RFC3339))
	}
	return d, true, nil
}

// standIn returns what is checked for a code that the edge does not have: it takes as long as one that the edge has.
func (k *Keeper) standIn() syncproto.DeliveredSiteCode {
	d := syncproto.DeliveredSiteCode{ID: unknownID, Salt: make([]byte, 16), Hash: make([]byte, 32), Rounds: sitecode.Rounds}
	if held := k.heldCodes(); len(held) > 0 {
		d.Rounds = held[0].Rounds
	}
	return d
}

// named returns what may be told of a code: nothing of an unknown one.
func named(d syncproto.DeliveredSiteCode) syncproto.DeliveredSiteCode {
	if d.ID == unknownID {
		return syncproto.DeliveredSiteCode{}
	}
	return syncproto.DeliveredSiteCode{ID: d.ID, Name: d.Name}
}

// recordTries journals the wrong tries of a code. Codes that the edge has forgotten are left out.
func (k *Keeper) recordTries(ctx context.Context, id string, t tries) error {
	next := map[string]tries{}
	for other, count := range k.tries {
		if _, known := k.findCode(other); known || other == unknownID {
			next[other] = count
		}
	}
	if next[id] = t; t == (tries{}) {
		delete(next, id)
	}
	plain, err := codec.Marshal(triesRecord{recordVersion, next})
	if err != nil {
		return fmt.Errorf("record a try of a site code: %w", err)
	}
	if err := k.cfg.Journal.PutHandle(ctx, noAlloc, triesKey, k.cfg.Sealer.Seal(plain, []byte(triesKey))); err != nil {
		return fmt.Errorf("record a try of a site code: %w", err)
	}
	k.tries = next
	return nil
}

// openTries decrypts and decodes the record of the tries.
func openTries(s Sealer, raw []byte) (map[string]tries, error) {
	if len(raw) > maxRecord {
		return nil, fmt.Errorf("read the tries of site codes: %d bytes", len(raw))
	}
	plain, err := s.Open(raw, []byte(triesKey))
	if err != nil {
		return nil, fmt.Errorf("read the tries of site codes: %w", err)
	}
	return decodeTries(plain)
}

// decodeTries decodes the decrypted record of the tries.
func decodeTries(plain []byte) (map[string]tries, error) {
	var r triesRecord
	if err := decoder.Unmarshal(plain, &r); err != nil {
		return nil, fmt.Errorf("decode the tries of site codes: %w", err)
	}
	if r.Version != recordVersion {
		return nil, fmt.Errorf("decode the tries of site codes: version %d", r.Version)
	}
	for id, t := range r.Tries {
		if t.Wrong < 1 {
			return nil, fmt.Errorf("decode the tries of site codes: %d of %.32q", t.Wrong, id)
		}
	}
	if r.Tries == nil {
		r.Tries = map[string]tries{}
	}
	return r.Tries, nil
}

// suspectAll returns the tries of a Keeper whose record is damaged: every code has to wait once.
func (k *Keeper) suspectAll() map[string]tries {
	until := k.cfg.Journal.TimeFloor() + int64(firstPause)
	all := map[string]tries{unknownID: {freeTries + 1, until}}
	for id := range k.codes {
		all[id] = tries{freeTries + 1, until}
	}
	return all
}
