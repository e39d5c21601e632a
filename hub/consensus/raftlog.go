package consensus

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// raftLog is the logger of raft and raft-wal; it writes to slog. Their messages below the level warning go
// one level down: an event that is a milestone to raft is a detail for an operator.
type raftLog struct {
	log  *slog.Logger
	name string
	args []any
}

var _ hclog.Logger = (*raftLog)(nil)

// newRaftLog returns a logger named "raft" that writes to l.
func newRaftLog(l *slog.Logger) *raftLog { return &raftLog{log: l, name: "raft"} }

// slogLevel converts a level of hclog to the slog level that it is logged at.
func slogLevel(l hclog.Level) slog.Level {
	switch {
	case l >= hclog.Warn:
		return slog.LevelWarn
	case l == hclog.Info:
		return slog.LevelDebug
	default:
		return slog.LevelDebug - 4
	}
}

// Log writes a message with the logger's name in front.
func (l *raftLog) Log(level hclog.Level, msg string, args ...any) {
	ctx := context.Background()
	lv := slogLevel(level)
	if !l.log.Enabled(ctx, lv) {
		return
	}
	l.log.Log(ctx, lv, l.name+": "+msg, formatted(args)...)
}

// formatted returns args with hclog's deferred formats replaced by their text.
func formatted(args []any) []any {
	out := make([]any, len(args))
	for i, a := range args {
		if f, ok := a.(hclog.Format); ok && len(f) > 0 {
			a = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
		}
		out[i] = a
	}
	return out
}

func (l *raftLog) Trace(msg string, args ...any) { l.Log(hclog.Trace, msg, args...) }
func (l *raftLog) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }
func (l *raftLog) Info(msg string, args ...any)  { l.Log(hclog.Info, msg, args...) }
func (l *raftLog) Warn(msg string, args ...any)  { l.Log(hclog.Warn, msg, args...) }
func (l *raftLog) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

// isLevelEnabled reports whether messages of this hclog level are logged.
func (l *raftLog) isLevelEnabled(level hclog.Level) bool {
	return l.log.Enabled(context.Background(), slogLevel(level))
}

func (l *raftLog) IsTrace() bool { return l.isLevelEnabled(hclog.Trace) }
func (l *raftLog) IsDebug() bool { return l.isLevelEnabled(hclog.Debug) }
func (l *raftLog) IsInfo() bool  { return l.isLevelEnabled(hclog.Info) }
func (l *raftLog) IsWarn() bool  { return l.isLevelEnabled(hclog.Warn) }
func (l *raftLog) IsError() bool { return l.isLevelEnabled(hclog.Error) }

func (l *raftLog) ImpliedArgs() []any { return l.args }

func (l *raftLog) With(args ...any) hclog.Logger {
	return &raftLog{log: l.log.With(formatted(args)...), name: l.name, args: append(l.args[:len(l.args):len(l.args)], args...)}
}

func (l *raftLog) Name() string { return l.name }

func (l *raftLog) Named(name string) hclog.Logger { return l.ResetNamed(l.name + "." + name) }

func (l *raftLog) ResetNamed(name string) hclog.Logger {
	return &raftLog{log: l.log, name: name, args: l.args}
}

func (l *raftLog) SetLevel(hclog.Level) {} // slog's handler has the level

// GetLevel returns the lowest hclog level that is logged.
func (l *raftLog) GetLevel() hclog.Level {
	for _, level := range []hclog.Level{hclog.Trace, hclog.Debug, hclog.Info, hclog.Warn} {
		if l.isLevelEnabled(level) {
			return level
		}
	}
	return hclog.Error
}

func (l *raftLog) StandardLogger(o *hclog.StandardLoggerOptions) *log.Logger {
	return log.New(l.StandardWriter(o), "", 0)
}

func (l *raftLog) StandardWriter(*hclog.StandardLoggerOptions) io.Writer { return lineWriter{l} }

// lineWriter logs each write at hclog's info level.
type lineWriter struct{ log *raftLog }

func (w lineWriter) Write(b []byte) (int, error) {
	w.log.Info(string(bytes.TrimRight(b, "\n")))
	return len(b), nil
}
