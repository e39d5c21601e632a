package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"skerry/drivers"
	"skerry/fleet"
)

// recordVersion is the version of a record. A later release reads the earlier
// ones: tasks outlive upgrades of the agent.
const recordVersion = 1

// maxRecord bounds what is decoded as a record.
const maxRecord = 256 << 10

// record is what the journal keeps of a task besides its state, under the task's
// name, so that a later life of the agent goes on where this one was. It is
// written before an attempt is started, with Handle once it was, and before it is
// ended on purpose, in one piece with the event that says so.
type record struct {
	Version int          `json:"version"`
	BootID  fleet.BootID `json:"boot_id"`
	// Mono is the monotonic time at which the record was written.
	Mono time.Duration `json:"mono"`
	// Attempt numbers the starts of the task, from 1, and is part of the driver's
	// task id. It was, or is about to be, started.
	Attempt int `json:"attempt"`
	// Restarts is TaskState.Restarts as of the attempt's start. Where the journaled
	// state has more, the attempt's end was journaled, too.
	Restarts uint64          `json:"restarts"`
	Window   restartWindow   `json:"window"`
	Handle   *drivers.Handle `json:"handle,omitempty"` // nil: not known to have started
	// Started is the monotonic time of the attempt's start.
	Started time.Duration `json:"started"`
	// Restarting is why an operator has the attempt ended and another started; "":
	// none does.
	Restarting string `json:"restarting,omitempty"`
	// Unhealthy says that the task's checks have it ended and not an operator: the
	// restart policy counts that.
	Unhealthy bool `json:"unhealthy,omitempty"`
	// Ending is when, by the monotonic time of BootID, the first of the allocation's tasks
	// was to end, and StopAt when this one is to be stopped; 0: it has no shutdown_delay,
	// or is not to end.
	Ending time.Duration `json:"ending,omitempty"`
	StopAt time.Duration `json:"stop_at,omitempty"`
	// Killing says that the attempt is being stopped, and that this was told.
	Killing bool `json:"killing,omitempty"`
	// Ended says that the attempt's end was journaled, and Due at what monotonic
	// time the next one is to be started.
	Ended bool          `json:"ended,omitempty"`
	Due   time.Duration `json:"due,omitempty"`
}

func (r record) encodeRecord() ([]byte, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	return b, nil
}

func decodeRecord(b []byte) (record, error) {
	if len(b) > maxRecord {
		return record{}, fmt.Errorf("decode record: %d bytes are too many", len(b))
	}
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return record{}, fmt.Errorf("decode record: %w", err)
	}
	switch {
	case r.Version != recordVersion:
		return record{}, fmt.Errorf("decode record: version %d is not known", r.Version)
	case r.Attempt < 1 || r.Window.Count < 0:
		return record{}, errors.New("decode record: a number is negative")
	}
	return r, nil
}
