// Package audit keeps a hub's audit: one line (JSON) for each change that was asked of it, each command in a task, and
// each refusal. hub/api appends the lines and reads them. They are in files of DATA/audit, which internal/hashchain
// describes. A line is written before its request is answered. A hub whose disk is full serves on.
//
// Append may be called by many goroutines. Run flushes what was written, and FollowEdges writes what people did on edges;
// the hub runs both.
package audit

import (
	"log/slog"
	"time"

	"skerry/api"
	"skerry/fleet"
	"skerry/internal/hashchain"
)

// Config of a Log. All but FileBytes and Files is required; those are 0 for the bounds of internal/hashchain.
type Config struct {
	Dir       string // made with the first entry
	Hub       fleet.HubID
	Now       func() time.Time
	Log       *slog.Logger
	FileBytes int64
	Files     int
}

// Log is the audit of one hub.
type Log struct {
	*hashchain.Log[api.AuditEntry]
	cfg Config
}

// Open finds the end of the audit. It removes half a line that a loss of power left there.
func Open(cfg Config) (*Log, error) {
	l, err := hashchain.Open(hashchain.Config[api.AuditEntry]{
		Dir: cfg.Dir, Log: cfg.Log, FileBytes: cfg.FileBytes, Files: cfg.Files,
		Stamp: func(e *api.AuditEntry, seq uint64, prev string) {
			e.Seq, e.Time, e.Hub, e.Prev = seq, cfg.Now().UTC(), cfg.Hub, prev
		},
		Lost: func(n uint64) api.AuditEntry { return api.AuditEntry{Verb: api.AuditLost, Lost: n} },
	})
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "%w", err).
			WithHint("move the folder %s elsewhere, and the hub begins another audit", cfg.Dir)
	}
	return &Log{l, cfg}, nil
}

// Append writes an entry: it sets Seq, Time, Hub and Prev. A failure is logged, and the entry counts as lost.
func (l *Log) Append(e api.AuditEntry) { l.Log.Append(e) }
