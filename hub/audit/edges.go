package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"skerry/api"
	"skerry/hub/state"
	"skerry/internal/durable"
	"skerry/internal/pace"
)

const (
	// edgesFile, in the folder of the audit, has the number of the last action on an edge that is written and durable, and
	// the number of the last entry then.
	edgesFile = "edges"
	// edgesRetry is the pause after an action could not be written.
	edgesRetry = 10 * time.Second
)

// FollowEdges writes the actions of people on edges that the cluster hears of, each once, until ctx ends.
func (l *Log) FollowEdges(ctx context.Context, st *state.Store) error {
	for said := ""; ; {
		err := l.followEdges(ctx, st)
		if ctx.Err() != nil {
			return nil
		}
		if err.Error() != said {
			said = err.Error()
			l.cfg.Log.Error("actions on edges not written into the audit: trying again", "error", err)
		}
		if !pace.Rest(ctx, edgesRetry) {
			return nil
		}
	}
}

// followEdges writes actions until something fails or ctx ends: its error is never nil.
func (l *Log) followEdges(ctx context.Context, st *state.Store) error {
	number, err := l.readEdgesPosition()
	if err != nil {
		return err
	}
	for {
		v := st.Watch()
		last, err := l.appendEdgeActions(v, number)
		if last != number {
			number = last
			err = errors.Join(err, l.writeEdgesPosition(number))
		}
		if err != nil {
			return err
		}
		if err := v.Changed(ctx); err != nil {
			return err
		}
	}
}

// appendEdgeActions writes the actions after a number, and returns the number of the last one that is written.
func (l *Log) appendEdgeActions(v *state.View, number uint64) (uint64, error) {
	for a := range v.SiteActions(number) {
		if number > 0 && a.Number > number+1 {
			if err := l.Log.TryAppend(api.AuditEntry{Verb: api.AuditLost, Lost: a.Number - number - 1, Source: "edges"}); err != nil {
				return number, err
			}
		}
		if err := l.Log.TryAppend(entryOf(a)); err != nil {
			return number, err
		}
		number = a.Number
	}
	return number, nil
}

// entryOf returns the entry of an action.
func entryOf(s *state.SiteAction) api.AuditEntry {
	a := &s.Action
	return api.AuditEntry{
		Actor: api.AuditActor{User: a.User, UID: a.UID, Person: a.Person, SiteCode: a.SiteCode}, Source: s.NodeName, Verb: a.Verb, Object: a.Object, Code: a.Code,
		Lost: a.Lost, Reason: a.Reason,
		Edge: &api.AuditEdge{
			NodeID: s.NodeID, NodeName: s.NodeName, Number: s.Number, Reported: time.Unix(0, s.Reported).UTC(), Time: a.Time,
			Chain: a.Chain, Seq: a.Seq, Prev: a.Prev,
		},
	}
}

// readEdgesPosition returns the number of the last action that is written: that of the file, or of an entry behind it.
func (l *Log) readEdgesPosition() (number uint64, err error) {
	var seq uint64
	text, err := os.ReadFile(filepath.Join(l.cfg.Dir, edgesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, l.writeEdgesPosition(0)
	}
	if err == nil {
		_, err = fmt.Sscanf(string(text), "%d %d\n", &number, &seq)
	}
	if err != nil {
		return 0, fmt.Errorf("read which actions on edges are in the audit: %w", err)
	}
	newest := newestEdgeAction{number: number}
	if err := l.Copy(&newest, seq); err != nil {
		return 0, err
	}
	return newest.number, nil
}

// newestEdgeAction finds the greatest number of an action in lines of an audit, each of which is one Write.
type newestEdgeAction struct{ number uint64 }

// Write implements io.Writer.
func (n *newestEdgeAction) Write(line []byte) (int, error) {
	if !bytes.Contains(line, []byte(`"Edge":`)) {
		return len(line), nil
	}
	var e api.AuditEntry
	if err := json.Unmarshal(line, &e); err != nil {
		return 0, fmt.Errorf("read which actions on edges are in the audit: %w", err)
	}
	if e.Edge != nil {
		n.number = max(n.number, e.Edge.Number)
	}
	return len(line), nil
}

// writeEdgesPosition makes the written entries durable, and then records that they have the actions up to a number.
func (l *Log) writeEdgesPosition(number uint64) error {
	last, err := l.Flush()
	if err != nil {
		return err
	}
	if err := durable.MakeFolders(l.cfg.Dir, 0o700); err != nil {
		return err
	}
	return durable.Replace(filepath.Join(l.cfg.Dir, edgesFile), fmt.Appendf(nil, "%d %d\n", number, last), 0o600)
}
