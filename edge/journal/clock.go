package journal

import (
	"context"
	"time"

	"skerry/fleet"
)

// clockCheckpoint is where the journal's time stood when it was last written, and what is
// written along with it. Age is how long this journal has lived on a running
// machine: the monotonic times of all its boots, added up. What passed while the
// machine was off is not in it, and no wall clock ever is.
type clockCheckpoint struct {
	BootID fleet.BootID  `cbor:"1,keyasint"`
	Mono   time.Duration `cbor:"2,keyasint"`
	Age    time.Duration `cbor:"3,keyasint"`
	// AckAge is the age at the last acknowledged beat, -1 before the first.
	AckAge time.Duration `cbor:"4,keyasint"`
	// Floor is the latest time known to be past (UnixNano), and the age then.
	Floor        int64         `cbor:"5,keyasint"`
	FloorAge     time.Duration `cbor:"6,keyasint"`
	Acknowledged fleet.Seq     `cbor:"7,keyasint"`
	// Dropped counts transitions that the next gap row has to report.
	Dropped     uint64 `cbor:"8,keyasint"`
	DroppedEver uint64 `cbor:"9,keyasint"`
	// HubTime is what a hub's clock showed last (UnixNano), and HubAge the age then; 0:
	// nothing is known of it.
	HubTime int64         `cbor:"10,keyasint,omitempty"`
	HubAge  time.Duration `cbor:"11,keyasint,omitempty"`
}

// hubContact is what changes with every beat and acknowledgement. It counts at once
// and reaches the disk with a later commit: the hub says it again.
type hubContact struct {
	acknowledged fleet.Seq
	ackAge       time.Duration
	floor        int64
	floorAge     time.Duration
	hubTime      int64
	hubAge       time.Duration
	dirty        bool
}

// clock turns the machine's monotonic clock into the journal's.
type clock struct {
	raw      func() time.Duration
	offset   time.Duration // added to raw: time since boot
	start    time.Duration // time since boot when the journal was opened
	startAge time.Duration // age then
	// countedSince is the age since which no time has passed uncounted: the boot, or, where a
	// boot's own clock is not known, when the journal was opened.
	countedSince time.Duration
}

// startClock goes on from where the last mark or row stands.
func startClock(cfg Config, last clockCheckpoint) clock {
	c := clock{raw: cfg.Mono}
	raw := cfg.Mono()
	same := last.BootID == cfg.BootID
	switch {
	case cfg.MonoRelative && same:
		c.offset = last.Mono - raw
	case cfg.MonoRelative:
		c.offset = -raw
	case same && raw < last.Mono: // within one boot time never goes back
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

// Mono is the time since boot as rows have it.
func (j *Journal) Mono() time.Duration { return j.clock.timeSinceBoot() }

// NoteHeartbeat notes that a hub acknowledged a heartbeat just now, and that its clock
// shows hubTime (UnixNano). It costs a commit at most every MarkEvery.
func (j *Journal) NoteHeartbeat(ctx context.Context, hubTime int64) error {
	age := j.clock.journalAge()
	j.mu.Lock()
	j.contact.ackAge, j.contact.hubTime, j.contact.hubAge = age, hubTime, age
	if hubTime > floorAt(j.contact.floor, j.contact.floorAge, age) {
		j.contact.floor, j.contact.floorAge = hubTime, age
	}
	j.contact.dirty = true
	due := j.durable.checkpoint.AckAge < 0 || age-j.durable.checkpoint.AckAge >= j.clockCheckpointEvery
	j.mu.Unlock()
	if !due {
		return nil
	}
	return j.submitOp(ctx, &op{write: func(b *batch) error { b.checkpointNeeded = true; return nil }})
}

// SetCheckpointInterval changes how often the time is written: where an allocation shall
// stop a short time after the last beat, an agent that is killed must remember
// that beat more exactly.
func (j *Journal) SetCheckpointInterval(d time.Duration) {
	j.mu.Lock()
	j.clockCheckpointEvery = d
	j.mu.Unlock()
}

// Away returns how long ago the last acknowledged beat was. It counts machine
// time only, across reboots: what passed while the machine was off is not in it.
// No wall clock is read. Before the first beat it is zero.
func (j *Journal) Away() time.Duration {
	age := j.clock.journalAge()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.contact.ackAge < 0 {
		return 0
	}
	return age - j.contact.ackAge
}

// TimeFloor is the latest time (UnixNano) known to be past: the largest that a
// hub's clock showed, plus the machine time since. Zero before the first beat.
func (j *Journal) TimeFloor() int64 {
	age := j.clock.journalAge()
	j.mu.Lock()
	defer j.mu.Unlock()
	return floorAt(j.contact.floor, j.contact.floorAge, age)
}

// HubNow is the time by the clock of the hub that answered last, and the machine time
// since. False where that is not known: no hub has answered since the machine booted, and
// for how long it was off nothing tells. The machine's own wall clock is not asked.
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
