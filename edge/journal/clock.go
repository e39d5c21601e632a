package journal

import (
	"context"
	"time"

	"skerry/fleet"
)

// clockCheckpoint is the journal's time when it was last written, with the values that are written along.
//
// Age is the time that this journal has lived on a running machine: the sum of the monotonic times of all its
// boots. It does not count the time that the machine was off, and no wall clock changes it.
type clockCheckpoint struct {
	BootID fleet.BootID  `cbor:"1,keyasint"`
	Mono   time.Duration `cbor:"2,keyasint"`
	Age    time.Duration `cbor:"3,keyasint"`
	// AckAge is the age at the last acknowledged heartbeat; -1 before the first.
	AckAge time.Duration `cbor:"4,keyasint"`
	// Floor is the latest time (UnixNano) that is known to be past, FloorAge the age then.
	Floor        int64         `cbor:"5,keyasint"`
	FloorAge     time.Duration `cbor:"6,keyasint"`
	Acknowledged fleet.Seq     `cbor:"7,keyasint"`
	// Dropped counts the transitions that the next gap row has to report.
	Dropped     uint64 `cbor:"8,keyasint"`
	DroppedEver uint64 `cbor:"9,keyasint"`
	// HubTime is the newest time of a hub's clock (UnixNano), HubAge the age then; 0: not known.
	HubTime int64         `cbor:"10,keyasint,omitempty"`
	HubAge  time.Duration `cbor:"11,keyasint,omitempty"`
}

// hubContact changes with every heartbeat and acknowledgement. It holds at once and is written with a
// later commit: after a crash the hub sends it again.
type hubContact struct {
	acknowledged fleet.Seq
	ackAge       time.Duration
	floor        int64
	floorAge     time.Duration
	hubTime      int64
	hubAge       time.Duration
	dirty        bool
}

// clock turns the machine's monotonic clock into the journal's clock.
type clock struct {
	raw      func() time.Duration
	offset   time.Duration // added to raw, gives the time since boot
	start    time.Duration // time since boot when the journal was opened
	startAge time.Duration // age when the journal was opened
	// countedSince is the age from which all time has been counted: the boot or, with a relative clock,
	// the opening of the journal.
	countedSince time.Duration
}

// startClock continues from the newest checkpoint or row.
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

func (c clock) timeSinceBoot() time.Duration { return c.raw() + c.offset }

func (c clock) journalAge() time.Duration { return c.startAge + c.timeSinceBoot() - c.start }

// Mono returns the time since boot, as rows have it.
func (j *Journal) Mono() time.Duration { return j.clock.timeSinceBoot() }

// NoteHeartbeat records that a hub has just acknowledged a heartbeat, and that its clock shows hubTime
// (UnixNano). It causes at most one commit per CheckpointEvery.
func (j *Journal) NoteHeartbeat(ctx context.Context, hubTime int64) error {
	age := j.clock.journalAge()
	j.mu.Lock()
	j.contact.ackAge, j.contact.hubTime, j.contact.hubAge = age, hubTime, age
	if hubTime > floorAt(j.contact.floor, j.contact.floorAge, age) {
		j.contact.floor, j.contact.floorAge = hubTime, age
	}
	j.contact.dirty = true
	due := j.durable.checkpoint.AckAge < 0 || age-j.durable.checkpoint.AckAge >= j.checkpointInterval
	j.mu.Unlock()
	if !due {
		return nil
	}
	return j.submitOp(ctx, &op{write: func(b *batch) error { b.checkpointNeeded = true; return nil }})
}

// SetCheckpointInterval changes how often the time is written. An allocation with a short
// stop_on_client_after needs the last heartbeat to survive a kill more exactly.
func (j *Journal) SetCheckpointInterval(d time.Duration) {
	j.mu.Lock()
	j.checkpointInterval = d
	j.mu.Unlock()
}

// Away returns the machine time since the last acknowledged heartbeat, across reboots; zero before the
// first one. It reads no wall clock and does not count the time that the machine was off.
func (j *Journal) Away() time.Duration {
	age := j.clock.journalAge()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.contact.ackAge < 0 {
		return 0
	}
	return age - j.contact.ackAge
}

// TimeFloor returns the latest time (UnixNano) that is known to be past: the largest time of a hub's
// clock plus the machine time since then. It is zero before the first heartbeat.
func (j *Journal) TimeFloor() int64 {
	age := j.clock.journalAge()
	j.mu.Lock()
	defer j.mu.Unlock()
	return floorAt(j.contact.floor, j.contact.floorAge, age)
}

// HubNow returns the time of the clock of the hub that answered last, plus the machine time since then.
// It returns false if no hub has answered since the boot, because nothing says how long the machine was
// off. It reads no wall clock.
func (j *Journal) HubNow() (time.Time, bool) {
	age := j.clock.journalAge()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.contact.hubTime == 0 || j.contact.hubAge <= j.clock.countedSince {
		return time.Time{}, false
	}
	return time.Unix(0, j.contact.hubTime).UTC().Add(age - j.contact.hubAge), true
}

func floorAt(floor int64, floorAge, age time.Duration) int64 {
	if floor == 0 {
		return 0
	}
	return floor + int64(age-floorAge)
}
