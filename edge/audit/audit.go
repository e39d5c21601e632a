// Package audit keeps an edge's audit: one line (JSON) for each change that somebody on site asked for. The lines are in
// files of DATA/audit, which internal/hashchain describes. Each line also becomes a row of the journal, and so reaches the
// hubs in order and once, also after months without a link.
//
// The agent appends a line before it answers. A line that cannot be journaled yet is journaled with the next one, or by
// Run, which also flushes the files. The journal has the number of the last journaled line, in the same transaction as
// the row.
package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"skerry/fleet"
	"skerry/internal/codec"
	"skerry/internal/hashchain"
	"skerry/internal/pace"
)

// Journal is the part of the edge's journal that a Log uses.
type Journal interface {
	PutHandle(ctx context.Context, alloc fleet.AllocID, key string, handle []byte, ts ...fleet.Transition) error
	Handles(ctx context.Context, alloc fleet.AllocID) (map[string][]byte, error)
}

// Config of a Log. All but FileBytes and Files is required.
type Config struct {
	Dir       string // made with the first line
	Journal   Journal
	Now       func() time.Time
	Log       *slog.Logger
	FileBytes int64 // 0: fileBytes
	Files     int   // 0: files
}

const (
	// fileBytes is the size from which on another file is begun, and files how many are kept: 8 MiB in all.
	fileBytes = 1 << 20
	files     = 8

	// journalKey is the journal's key of the last journaled line. It belongs to no allocation.
	journalKey    = "audit"
	noAlloc       = fleet.AllocID("")
	recordVersion = 1
	maxRecord     = 1 << 10
	// maxRows bounds the rows of one transaction.
	maxRows = 100
	// retryInterval is the pause before lines that could not be journaled are tried again.
	retryInterval = time.Minute
)

// record says in the journal which line was journaled last.
type record struct {
	Version int    `cbor:"1,keyasint"`
	Chain   string `cbor:"2,keyasint"`
	Seq     uint64 `cbor:"3,keyasint"`
}

// Log is the audit of one edge. Its methods may be called from any goroutine.
type Log struct {
	cfg   Config
	chain string
	lines *hashchain.Log[fleet.SiteAction]

	turn chan struct{} // capacity 1; full while lines are journaled: no mutex is held while a disk is awaited
	told uint64        // the last line that is journaled
}

// Open finds the end of the audit. Without lines it begins another chain.
func Open(cfg Config) (*Log, error) {
	if cfg.FileBytes == 0 {
		cfg.FileBytes = fileBytes
	}
	if cfg.Files == 0 {
		cfg.Files = files
	}
	l := &Log{cfg: cfg, chain: fleet.NewUUID(nil), turn: make(chan struct{}, 1)}
	var err error
	l.lines, err = hashchain.Open(hashchain.Config[fleet.SiteAction]{
		Dir: cfg.Dir, Log: cfg.Log, FileBytes: cfg.FileBytes, Files: cfg.Files,
		Stamp: func(a *fleet.SiteAction, seq uint64, prev string) {
			a.Seq, a.Prev, a.Chain, a.Time = seq, prev, l.chain, cfg.Now().UTC()
		},
		Lost: func(n uint64) fleet.SiteAction { return fleet.SiteAction{Verb: fleet.SiteActionsLost, Lost: n} },
	})
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "%w", err).
			WithHint("move the folder %s elsewhere, and the edge begins another audit", cfg.Dir)
	}
	if err := l.readPosition(); err != nil {
		return nil, fmt.Errorf("open the audit: %w", err)
	}
	return l, nil
}

// readPosition reads the name of the chain from its last line, and which of its lines is journaled.
func (l *Log) readPosition() error {
	last := l.lines.Last()
	if last == 0 {
		return nil
	}
	actions, err := l.actionsAfter(last - 1)
	if err != nil {
		return err
	}
	if len(actions) != 1 || actions[0].Chain == "" {
		return fmt.Errorf("line %d names no chain", last)
	}
	l.chain = actions[0].Chain
	held, err := l.cfg.Journal.Handles(context.Background(), noAlloc)
	if err != nil {
		return err
	}
	if r, err := decodeRecord(held[journalKey]); err == nil && r.Chain == l.chain {
		l.told = r.Seq
	} // otherwise the journal was lost: the hubs ignore the lines that they have
	return nil
}

var decoder = codec.NewDecoder(codec.Limits{Nesting: 4, Elements: 16, Pairs: 16, Items: 16})

// decodeRecord decodes the journal's record.
func decodeRecord(raw []byte) (record, error) {
	var r record
	if len(raw) > maxRecord {
		return r, fmt.Errorf("decode the position of the audit: %d bytes", len(raw))
	}
	if err := decoder.Unmarshal(raw, &r); err != nil {
		return r, fmt.Errorf("decode the position of the audit: %w", err)
	}
	if r.Version != recordVersion {
		return r, fmt.Errorf("decode the position of the audit: version %d", r.Version)
	}
	return r, nil
}

// Append writes an action and journals it. It numbers and dates it. A failure is logged: what the action did is done.
func (l *Log) Append(ctx context.Context, a fleet.SiteAction) {
	if !l.lines.Append(a) {
		return
	}
	if err := l.journalLines(context.WithoutCancel(ctx)); err != nil {
		l.cfg.Log.Warn("audit not journaled: trying again", "error", err)
	}
}

// journalLines journals the lines that are not journaled yet, in order.
func (l *Log) journalLines(ctx context.Context) error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	if l.told >= l.lines.Last() {
		return nil
	}
	actions, err := l.actionsAfter(l.told)
	if err != nil {
		return err
	}
	for len(actions) > 0 {
		n := min(len(actions), maxRows)
		rows := make([]fleet.Transition, n)
		for i := range n {
			rows[i] = fleet.Transition{Kind: fleet.TransitionSite, Site: &actions[i], Message: describe(&actions[i])}
		}
		last := actions[n-1].Seq
		position, err := codec.Marshal(record{recordVersion, l.chain, last})
		if err != nil {
			return err
		}
		if err := l.cfg.Journal.PutHandle(ctx, noAlloc, journalKey, position, rows...); err != nil {
			return err
		}
		l.told, actions = last, actions[n:]
	}
	return nil
}

// describe returns an action as the text of its row.
func describe(a *fleet.SiteAction) string {
	if a.Verb == fleet.SiteActionsLost {
		return fmt.Sprintf("%d actions on site could not be written down", a.Lost)
	}
	text := fmt.Sprintf("%s: %s %s", a.Who(), a.Verb, a.Object)
	if a.Reason != "" {
		text += ": " + a.Reason
	}
	if a.Code != "" {
		text += fmt.Sprintf(" (refused: %s)", a.Code)
	}
	return text
}

// actionsAfter reads the lines after a number.
func (l *Log) actionsAfter(after uint64) ([]fleet.SiteAction, error) {
	var text bytes.Buffer
	if err := l.lines.Copy(&text, after); err != nil {
		return nil, err
	}
	var actions []fleet.SiteAction
	for line := range bytes.Lines(text.Bytes()) {
		var a fleet.SiteAction
		if err := json.Unmarshal(line, &a); err != nil {
			return nil, fmt.Errorf("read the audit: %w", err)
		}
		actions = append(actions, a)
	}
	return actions, nil
}

// Copy writes the lines after a number, as they are in the files.
func (l *Log) Copy(w io.Writer, after uint64) error { return l.lines.Copy(w, after) }

// Run journals what a start finds not journaled, and flushes the files, until ctx ends.
func (l *Log) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return l.lines.Run(ctx) })
	g.Go(func() error {
		for {
			if err := l.journalLines(ctx); err != nil && ctx.Err() == nil {
				l.cfg.Log.Warn("audit not journaled: trying again", "error", err)
			}
			if !pace.Rest(ctx, retryInterval) {
				return nil
			}
		}
	})
	return g.Wait()
}

// Close flushes and closes the file.
func (l *Log) Close() error { return l.lines.Close() }
