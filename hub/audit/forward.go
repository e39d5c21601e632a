package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"skerry/api"
	"skerry/internal/durable"
	"skerry/internal/hashchain"
	"skerry/internal/pace"
)

// Bounds of what a Destination gets at once, and of the pause after it took nothing.
const (
	maxBatchLines = 1000
	maxBatchBytes = 1 << 20
	shortestPause = time.Second
	longestPause  = time.Minute
)

// Destination takes the lines of an audit: a collector, or a syslog server.
type Destination interface {
	// Name names the file that has the number of the last line that was taken, and the metric of those that were not.
	Name() string
	// Send gives lines, each with its end, in order. Lines whose Send failed are sent again.
	Send(ctx context.Context, lines [][]byte) error
}

// Forward sends each entry to a destination, in order and at least once, until ctx ends. Entries wait in the files of the
// audit while the destination takes none.
func (l *Log) Forward(ctx context.Context, to Destination) error {
	for pause, said := shortestPause, ""; ; {
		err := l.forwardEntries(ctx, to, func(last uint64) {
			if said != "" {
				l.cfg.Log.Info("audit is sent again", "to", to.Name(), "last", last)
			}
			pause, said = shortestPause, ""
		})
		if ctx.Err() != nil {
			return nil
		}
		if err.Error() != said {
			said = err.Error()
			l.cfg.Log.Error("audit not sent: trying again", "to", to.Name(), "error", err)
		}
		if !pace.Rest(ctx, pause) {
			return nil
		}
		pause = min(2*pause, longestPause)
	}
}

// forwardEntries sends entries until something fails or ctx ends: its error is never nil. It calls taken with the number of
// the last entry of each part that the destination took.
func (l *Log) forwardEntries(ctx context.Context, to Destination, taken func(last uint64)) error {
	sent, err := l.readSent(to)
	if err != nil {
		return err
	}
	r := l.ReadAfter(sent)
	defer r.Close()
	for {
		if err := l.AwaitAfter(ctx, sent); err != nil {
			return err
		}
		// A line that a loss of power takes must not have been sent: another one would get its number.
		durableTo, err := l.Flush()
		if err != nil {
			return err
		}
		lines, err := readBatch(r, durableTo)
		if err != nil {
			return err
		}
		if len(lines) > 0 {
			if missing := r.Last() - sent - uint64(len(lines)); missing > 0 {
				l.cfg.Log.Error("entries of the audit were removed before they were sent", "to", to.Name(), "entries", missing)
			}
			if err := to.Send(ctx, lines); err != nil {
				return err
			}
			sent = r.Last()
			if err := durable.Replace(l.sentFile(to), fmt.Appendf(nil, "%d\n", sent), 0o600); err != nil {
				return err
			}
			taken(sent)
		}
		if len(lines) > 0 && sent < durableTo {
			continue
		}
		r.Close() // it goes on where it was: entries that come together are sent together
		if !pace.Rest(ctx, shortestPause) {
			return ctx.Err()
		}
	}
}

// readBatch returns the next lines up to the entry with the number last, within the bounds of a batch.
func readBatch(r *hashchain.Reader[api.AuditEntry], last uint64) ([][]byte, error) {
	var lines [][]byte
	for size := 0; r.Last() < last && len(lines) < maxBatchLines && size < maxBatchBytes; {
		line, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the audit: %w", err)
		}
		lines, size = append(lines, line), size+len(line)
	}
	return lines, nil
}

// Unsent returns how many entries wait for a destination.
func (l *Log) Unsent(to Destination) (uint64, error) {
	sent, err := l.readSent(to)
	if err != nil {
		return 0, err
	}
	return l.Last() - min(sent, l.Last()), nil
}

// sentFile returns the path of the file with the number of the last entry that a destination took.
func (l *Log) sentFile(to Destination) string { return filepath.Join(l.cfg.Dir, "sent-"+to.Name()) }

// readSent returns the number of the last entry that a destination took.
func (l *Log) readSent(to Destination) (sent uint64, err error) {
	text, err := os.ReadFile(l.sentFile(to))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err == nil {
		_, err = fmt.Sscanf(string(text), "%d\n", &sent)
	}
	if err != nil {
		return 0, fmt.Errorf("read which entries of the audit were sent to the %s: %w", to.Name(), err)
	}
	return min(sent, l.Last()), nil
}
