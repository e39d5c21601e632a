package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"skerry/drivers"
	"skerry/fleet"
)

// recordVersion is the version of a record. Later releases must read it, because tasks survive an
// upgrade of the agent.
const recordVersion = 1

// maxRecord bounds an encoded record, in bytes.
const maxRecord = 256 << 10

// record has the facts with which a restarted agent continues a task. The journal stores it under the task's name. It
// is written before an attempt starts, again with its Handle, and before it is stopped, together with the event.
type record struct {
	Version int          `json:"version"`
	BootID  fleet.BootID `json:"boot_id"`
	// Mono is the monotonic time of the record.
	Mono time.Duration `json:"mono"`
	// Attempt numbers the starts of the task from 1 and is part of the driver's task id. It was
	// started, or will be.
	Attempt int `json:"attempt"`
	// Restarts is TaskState.Restarts at the attempt's start. If the journaled state has more, the
	// attempt's end was journaled.
	Restarts uint64 `json:"restarts"`
	// Window counts restarts for the restart policy.
	Window restartWindow   `json:"window"`
	Handle *drivers.Handle `json:"handle,omitempty"` // nil: not known to have started
	// Started is the monotonic time of the attempt's start.
	Started time.Duration `json:"started"`
	// Restarting is the reason of a requested restart; "": none.
	Restarting string `json:"restarting,omitempty"`
	// Unhealthy says that failed checks requested the restart, so that the restart policy counts it.
	Unhealthy bool `json:"unhealthy,omitempty"`
	// Ending is when the first of the allocation's tasks was told to stop, and StopAt when this one is
	// to be stopped, in monotonic time of BootID; 0: no shutdown_delay, or not told to stop.
	Ending time.Duration `json:"ending,omitempty"`
	StopAt time.Duration `json:"stop_at,omitempty"`
	// Killing says that the attempt is being stopped and that its event is journaled.
	Killing bool `json:"killing,omitempty"`
	// Ended says that the attempt's end is journaled. Due is the monotonic time of the next start.
	Ended bool          `json:"ended,omitempty"`
	Due   time.Duration `json:"due,omitempty"`
}

// encodeRecord returns the record as the journal stores it.
func (r record) encodeRecord() ([]byte, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the record of a task: %w", err)
	}
	return b, nil
}

// decodeRecord decodes a record. It returns an error for an unknown version and for numbers that cannot be
// true.
func decodeRecord(b []byte) (record, error) {
	if len(b) > maxRecord {
		return record{}, fmt.Errorf("decode the record of a task: %d bytes are too many", len(b))
	}
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return record{}, fmt.Errorf("decode the record of a task: %w", err)
	}
	switch {
	case r.Version != recordVersion:
		return record{}, fmt.Errorf("decode the record of a task: version %d is not known", r.Version)
	case r.Attempt < 1 || r.Window.Count < 0:
		return record{}, errors.New("decode the record of a task: the number of the attempt or of restarts is out of range")
	}
	return r, nil
}
