package edge

import (
	"bytes"
	"context"
	"io"

	"skerry/edge/tasklog"
	"skerry/syncproto"
)

// toLogRequest converts a hub's request to one for a task's output.
func toLogRequest(req syncproto.Request) tasklog.Request {
	return tasklog.Request{Task: req.Task, Stream: req.Stream, Offset: req.Offset, Origin: req.Origin, Follow: req.Follow}
}

// openLogPieces returns a reader of a task's output as encoded LogPiece frames, which say where each piece
// lies.
func (e *Edge) openLogPieces(ctx context.Context, req syncproto.Request) (io.ReadCloser, error) {
	log, err := e.openLogs(ctx, req.Alloc, toLogRequest(req))
	if err != nil {
		return nil, err
	}
	return &logPieces{log: log, data: make([]byte, syncproto.MaxExecData)}, nil
}

// logPieces is an io.Reader of a task's output as LogPiece frames. It belongs to one goroutine.
type logPieces struct {
	log    *tasklog.Reader
	data   []byte
	frames bytes.Buffer // not yet returned by Read
}

// Read returns the next bytes of the frames. It reads more of the output only when all frames are returned.
func (l *logPieces) Read(p []byte) (int, error) {
	if l.frames.Len() == 0 {
		n, err := l.log.Read(l.data)
		if err != nil {
			return 0, err
		}
		number, end := l.log.Position()
		piece := syncproto.LogPiece{File: uint64(number), Offset: end - int64(n), Data: l.data[:n]}
		if err := syncproto.NewWriter(&l.frames).Write(piece); err != nil {
			return 0, err
		}
	}
	return l.frames.Read(p)
}

func (l *logPieces) Close() error { return l.log.Close() }
