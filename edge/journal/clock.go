package journal

import (
	"context"
	"time"

	"skerry/fleet"
)

// clockCheckpoint is the stored record of the journal's clock, of the hubs' newest confirmations (hubContact)
// and of the dropped transitions. A commit writes it when batch.checkpointNeeded is set.
//
// Age is the time that this journal has lived on a running machine: the sum of the monotonic times of all its
// boots. It does not count the time that the machine was off, and no wall clock changes it.
type clockCheckpoint struct {
	// BootID is the boot in which the record was written, Mono the time since that boot.
	BootID fleet.BootID  `cbor:"1,keyasint"`
	Mono   time.Duration `cbor:"2,keyasint"`
	Age    time.Duration `cbor:"3,keyasint"`
	// AckAge is the age at which the last acknowledged heartbeat was sent; -1 before the first.
	AckAge time.Duration `cbor:"4,keyasint"`
	// Floor is a time (UnixNano) that has certainly passed, as a hub's clock showed it; 0: not known. FloorAge
	// is the age at which it was learned. Acknowledged is the newest row that the cluster has applied.
	Floor        int64         `cbor:"5,keyasint"`
	FloorAge     time.Duration `cbor:"6,keyasint"`
	Acknowledged fleet.Seq     `cbor:"7,keyasint"`
	// Dropped counts the transitions that were not stored since the last gap row, DroppedEver all of them.
	Dropped     uint64 `cbor:"8,keyasint"`
	DroppedEver uint64 `cbor:"9,keyasint"`
	// HubTime is the newest time of a hub's clock (UnixNano), HubAge the age then; 0: not known.
	HubTime int64         `cbor:"10,keyasint,omitempty"`
	HubAge  time.Duration `cbor:"11,keyasint,omitempty"`
	// NextWithin is the time after Age within which the next checkpoint is written: a loss of power loses at most this much
	// of the age. 0: an older release wrote it. Closed says that the journal was closed then, and lost nothing.
	NextWithin time.Duration `cbor:"12,keyasint,omitempty"`
	Closed     bool          `cbor:"13,keyasint,omitempty"`
	// Uncounted is the most time that was lost like that since AckAge.
	Uncounted time.Duration `cbor:"14,keyasint,omitempty"`
}

// hubContact is the part of clockCheckpoint that hubs confirm: the newest acknowledged row and the times of
// heartbeats. A change takes effect in memory at once and is written with a later commit: after a crash the hub
// sends it again.
type hubContact struct {
	acknowledged fleet.Seq
	ackAge       time.Duration
	floor        int64
	floorAge     time.Duration
	hubTime      int64
	hubAge       time.Duration
	uncounted    time.Duration
	// dirty says that something changed since the newest written checkpoint.
	dirty bool
}

// clock computes the journal's two times from the machine's monotonic clock: the time since boot, and the
// journal's age (clockCheckpoint.Age).
type clock struct {
	raw      func() time.Duration
	offset   time.Duration // added to raw, gives the time since boot
	start    time.Duration // time since boot when the journal was opened
	startAge time.Duration // age when the journal was opened
	// countedSince is the age from which all time has been counted: the boot or, with a relative clock,
	// the opening of the journal.
	countedSince time.Duration
}

// startClock returns the clock of a journal that is being opened. It continues the age of last, the newest
// stored time. Within one boot the time since last counts; after another boot only the time since that boot
// counts.
func startClock(cfg Config, last clockCheckpoint) clock {
	c := clock{raw: cfg.Mono}
	raw := cfg.Mono()
	same := last.BootID == cfg.BootID
	switch {
	case cfg.MonoRelative && same:
		c.offset = last.Mono - raw
	case cfg.MonoRelative:
		c.offset = -raw
	case same && raw < last.Mono: // time never goes back within one boot
		c.offset = last.Mono - raw
	}
	c.start = raw + c.offset
	c.startAge = last.Age + c.start
	if same {
		c.startAge = last.Age + c.start - last.Mono
	}
	c.countedSince = c.startAge - c.start
	if cfg.MonoRelative {
		c.countedSince = c.startAge
	}
	return c
}

// lostBefore returns the most machine time that may have passed after the newest stored time, and is not in the age of a journal
// that is being opened: a crash of the machine loses it, and with a relative clock one of the agent does.
func lostBefore(cfg Config, mem durableState) time.Duration {
	last := mem.checkpoint
	if last.Closed || last.BootID == cfg.BootID && !cfg.MonoRelative {
		return 0
	}
	return max(0, last.NextWithin-mem.sinceCheckpoint)
}

func (c clock) timeSinceBoot() time.Duration { return c.raw() + c.offset }

// journalAge returns the journal's age now, as clockCheckpoint.Age.
func (c clock) journalAge() time.Duration { return c.startAge + c.timeSinceBoot() - c.start }

// Mono returns the time since boot by the journal's clock, with which rows are stamped.
func (j *Journal) Mono() time.Duration { return j.clock.timeSinceBoot() }

// NoteHeartbeat records in memory that a hub has acknowledged a heartbeat that was sent roundTrip ago, and that its clock shows
// hubTime (UnixNano; 0: not trusted). The time without a hub counts from the sending: a hub counts from the arrival. A later
// commit writes it; SaveHeartbeat makes sure that one does.
func (j *Journal) NoteHeartbeat(roundTrip time.Duration, hubTime int64) {
	age := j.clock.journalAge()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.contact.ackAge, j.contact.hubTime, j.contact.hubAge, j.contact.uncounted = max(0, age-roundTrip), hubTime, age, 0
	if hubTime > floorAt(j.contact.floor, j.contact.floorAge, age) {
		j.contact.floor, j.contact.floorAge = hubTime, age
	}
	j.contact.dirty = true
}

// SaveHeartbeat waits for a commit that writes the newest acknowledged heartbeat, if the last written one is older than
// the checkpoint interval and no commit since NoteHeartbeat has done it.
func (j *Journal) SaveHeartbeat(ctx context.Context) error {
	age := j.clock.journalAge()
	j.mu.Lock()
	due := j.contact.isHeartbeatDue(j.durable.checkpoint, j.checkpointInterval, age)
	j.mu.Unlock()
	if !due {
		return nil
	}
	return j.submitOp(ctx, &op{write: func(b *batch) error { b.checkpointNeeded = true; return nil }})
}

// isHeartbeatDue reports whether the next commit must write the newest acknowledged heartbeat: the written one is older than
// the checkpoint interval.
func (c hubContact) isHeartbeatDue(written clockCheckpoint, interval, age time.Duration) bool {
	return c.dirty && c.ackAge != written.AckAge && (written.AckAge < 0 || age-written.AckAge >= interval)
}

// SetCheckpointInterval changes how often the journal's clock and the newest acknowledged heartbeat are
// written. A short stop_on_client_after needs a short interval, so that a kill of the agent or a loss of power makes little
// of that time uncertain.
func (j *Journal) SetCheckpointInterval(d time.Duration) {
	j.mu.Lock()
	changed := j.checkpointInterval != d
	j.checkpointInterval = d
	j.mu.Unlock()
	if changed {
		select {
		case j.intervalChanged <- struct{}{}:
		default: // the writer has not seen the last change yet
		}
	}
}

// pollInterval returns how often the writer checks if the time must be written.
func (j *Journal) pollInterval() time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	return min(clockPollInterval, max(j.writeWithin()/2, time.Millisecond))
}

// writeWithin returns the time after the newest checkpoint within which the next one is written: the interval, or less if
// that checkpoint promises so. The caller holds j.mu.
func (j *Journal) writeWithin() time.Duration {
	if promised := j.durable.checkpoint.NextWithin; promised > 0 {
		return min(j.checkpointInterval, promised)
	}
	return j.checkpointInterval
}

// isCheckpointDue reports whether the time must be written at age: the next poll may be too late, or the newest checkpoint
// allows a longer loss than the interval does.
func (j *Journal) isCheckpointDue(age, poll time.Duration) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	last := j.durable.checkpoint
	since := age - last.Age
	return !j.recorded || last.NextWithin > j.checkpointInterval || since+poll >= j.writeWithin() ||
		since >= checkpointAckAfter && j.contact.acknowledged != last.Acknowledged
}

// Away returns the machine time since the last acknowledged heartbeat was sent, across reboots; zero before the
// first one. It reads no wall clock and does not count the time that the machine was off.
func (j *Journal) Away() time.Duration {
	counted, _ := j.timeAway()
	return counted
}

// AwayAtMost is Away plus all running time that losses of power may have taken from it.
func (j *Journal) AwayAtMost() time.Duration {
	counted, lost := j.timeAway()
	return counted + lost
}

// timeAway returns what Away counts, and what losses of power may have taken from it.
func (j *Journal) timeAway() (counted, lost time.Duration) {
	age := j.clock.journalAge()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.contact.ackAge < 0 {
		return 0, 0
	}
	return age - j.contact.ackAge, j.contact.uncounted
}

// TimeFloor returns the latest time (UnixNano) that is known to be past: the largest time of a hub's
// clock plus the machine time since then. It is zero before the first heartbeat.
func (j *Journal) TimeFloor() int64 {
	age := j.clock.journalAge()
	j.mu.Lock()
	defer j.mu.Unlock()
	return floorAt(j.contact.floor, j.contact.floorAge, age)
}

// HubNow returns the present time by the clock of the hub that answered last: its time then plus the machine
// time since. It returns false if no hub has answered since the boot, because nothing says how long the machine
// was off. It reads no wall clock.
func (j *Journal) HubNow() (time.Time, bool) {
	age := j.clock.journalAge()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.contact.hubTime == 0 || j.contact.hubAge <= j.clock.countedSince {
		return time.Time{}, false
	}
	return time.Unix(0, j.contact.hubTime).UTC().Add(age - j.contact.hubAge), true
}

// floorAt returns the time that has certainly passed at age, if floor had passed at floorAge: floor plus the
// machine time in between. 0 stays 0.
func floorAt(floor int64, floorAge, age time.Duration) int64 {
	if floor == 0 {
		return 0
	}
	return floor + int64(age-floorAge)
}
