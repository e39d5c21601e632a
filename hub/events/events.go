// Package events serves the event stream: changes in the cluster, as they happen, to
// clients that name topics and a start. The HTTP API calls Open, once for each client.
//
// # Design
//
// This package creates no events. Each log entry adds the events that it caused to the
// replicated state, in a bounded window (hub/state/events.go: 16,384 events or about
// 8 MiB; the oldest whole entries are removed first). The window is part of snapshots,
// so it survives restarts. It is the same on every hub: a client that lost its hub can
// continue at another one, after the last index that it saw.
//
// A stream is a loop over views of that window. It holds a position (an index) and a piece
// of the line that it writes, and no queue:
//
//	read the entries after the position -> write one line for each -> wait for a change
//
// So applying an entry never waits for a reader, and slow readers need no more memory. The
// writer's deadline ends a stream whose client does not read. If the window has moved
// past the position of a slow reader, the stream ends with a line that says so; a stream
// that would begin before the window is refused. No event is left out silently.
//
// The choice of events (filter.go) is pure. Stream runs in its caller's goroutine. At
// most MaxStreams run at a time on a hub. The package persists nothing.
package events

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
)

// Times and bounds of a stream.
const (
	// Heartbeat is the time between two lines without events ("{}") on a stream that has nothing to send.
	Heartbeat = 10 * time.Second
	// MaxStreams is how many streams a hub serves at a time.
	MaxStreams = 512
)

// Filter is asked before each entry that a stream sends: which events may its client have now? It reads what that depends
// on from the view, so that a change of it wakes the stream. An error ends the stream.
type Filter = func(*state.View) (sees func(*state.Event) bool, err error)

// Streams serves the event streams of a hub.
type Streams struct {
	state *state.Store
	free  chan struct{}
}

// New returns the streams of the events in a state. It starts nothing.
func New(s *state.Store) *Streams {
	return &Streams{state: s, free: make(chan struct{}, MaxStreams)}
}

// Open checks a client's request and returns the index after which its stream begins, and the function that writes
// the stream (see Stream). It fails as NewRequest and Position do.
func (s *Streams) Open(topics []string, namespace string, from fleet.Index, sees Filter) (after fleet.Index, stream func(context.Context, io.Writer) error, err error) {
	req, err := NewRequest(topics, namespace, from)
	if err != nil {
		return 0, nil, err
	}
	if after, err = s.Position(req); err != nil {
		return 0, nil, err
	}
	req.filter = sees
	return after, func(ctx context.Context, lines io.Writer) error { return s.Stream(ctx, req, after, lines) }, nil
}

// Position returns the index after which the request's stream begins. CodeConflict: the events are no longer kept.
// CodeInvalid: the cluster has not reached that index.
func (s *Streams) Position(req Request) (fleet.Index, error) {
	v := s.state.Watch()
	return req.startPosition(v.EventsFloor(), v.Index())
}

// Stream writes the requested events after an index, one line for each log entry, until ctx ends (then it returns
// nil), a write fails, or the filter does. CodeUnavailable: MaxStreams run already.
func (s *Streams) Stream(ctx context.Context, req Request, after fleet.Index, sink io.Writer) error {
	select {
	case s.free <- struct{}{}:
		defer func() { <-s.free }()
	default:
		return fleet.Errorf(fleet.CodeUnavailable, "stream events: this hub serves %d streams already", MaxStreams).
			WithHint("ask another hub")
	}
	for {
		v := s.state.Watch()
		if floor := v.EventsFloor(); after < floor {
			lost := indexTooOld(after+1, floor)
			return errors.Join(lost, writeJSONLine(sink, streamError{lost.Error()}))
		}
		sees, err := req.filter(v)
		if err != nil {
			return errors.Join(err, writeJSONLine(sink, streamError{err.Error()}))
		}
		for index, happened := range v.EventsAfter(after) {
			after = index
			if err := writeBatch(sink, index, req.matchingEvents(happened, sees)); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return nil
			}
		}
		if err := waitForChange(ctx, v, sink); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// waitForChange waits until the state differs from v or ctx ends, at most for Heartbeat: then it writes a heartbeat
// line. It returns only errors of writing.
func waitForChange(ctx context.Context, v *state.View, sink io.Writer) error {
	beat, cancel := context.WithTimeout(ctx, Heartbeat)
	defer cancel()
	if v.Changed(beat) == nil || ctx.Err() != nil {
		return nil
	}
	return writeJSONLine(sink, struct{}{})
}

// streamError is the last line of a stream that cannot continue.
type streamError struct{ Error string }

// pieceBytes is about how much of a line one Write has: one entry may have 50,000 events.
const pieceBytes = 64 << 10

// writeBatch writes the events of one log entry as one line, an api.EventBatch, in pieces; nothing if there are none.
func writeBatch(sink io.Writer, index fleet.Index, happened iter.Seq[*state.Event]) error {
	var out *bufio.Writer
	var separator string
	for e := range happened {
		if out == nil { // most entries have no event for most streams
			out, separator = bufio.NewWriterSize(sink, pieceBytes), fmt.Sprintf(`{"Index":%d,"Events":[`, index)
		}
		b, err := json.Marshal(newEvent(index, e))
		if err != nil {
			return fmt.Errorf("encode event %s of %s %s: %w", e.Type, e.Topic, e.Key, err)
		}
		out.WriteString(separator)
		separator = ","
		if _, err := out.Write(b); err != nil {
			return fmt.Errorf("write events: %w", err)
		}
	}
	if out == nil {
		return nil
	}
	out.WriteString("]}\n")
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write events: %w", err)
	}
	return nil
}

// writeJSONLine writes v as one line of JSON, with one Write.
func writeJSONLine(sink io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode events: %w", err)
	}
	if _, err := sink.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("write events: %w", err)
	}
	return nil
}
