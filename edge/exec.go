package edge

import (
	"context"
	"io"
	"sync"
	"time"

	"skerry/edge/link"
	"skerry/fleet"
	"skerry/syncproto"
)

// Exec runs a command beside a task for a client of a hub, with talk as its input and output, and writes its
// exit code there. It ends with the command, the task, or the stream.
func (l linkEdge) Exec(ctx context.Context, req syncproto.Request, talk link.ExecStream) {
	if req.Kind == syncproto.RequestTakeData {
		l.e.takeData(ctx, req.Alloc, talk)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stdin, typed := io.Pipe()
	sizes := make(chan fleet.TerminalSize, 1)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer cancel() // the client is gone, or sent an invalid frame
		_ = typed.CloseWithError(readExec(talk, typed, sizes))
	})
	out := &execWriter{frames: syncproto.NewWriter(talk)}
	code, err := l.e.execInAlloc(ctx, req, fleet.Exec{
		Command: req.Command, Action: req.Action, TTY: req.TTY, Stdin: stdin, Stdout: outputOf{out, false}, Stderr: outputOf{out, true}, Sizes: sizes,
	})
	err = out.writeOutput(syncproto.ExecOutput{Exited: true, Code: code, Error: fleet.AsError(err)})
	_ = talk.SetReadDeadline(time.Unix(1, 0)) // ends readExec, also of a stream that is still open
	_ = stdin.Close()
	reading.Wait()
	l.e.log.Debug("command ended", "alloc_id", req.Alloc, "task", req.Task, "code", code, "error", err)
}

// takeData has an allocation take the data that a hub brings, and tells the hub how that ends.
func (e *Edge) takeData(ctx context.Context, id fleet.AllocID, talk link.ExecStream) {
	replies := syncproto.NewWriter(talk)
	err := e.allocs.TakeData(ctx, id, func() error { return replies.Write(syncproto.Reply{}) }, talk)
	if told := replies.Write(syncproto.Reply{Error: fleet.AsError(err)}); err != nil || told != nil {
		e.log.Debug("data not taken", "alloc_id", id, "error", err, "told", told)
	}
}

// execInAlloc checks a hub's request to run a command or an action, runs it beside its task, and returns the
// exit code.
func (e *Edge) execInAlloc(ctx context.Context, req syncproto.Request, x fleet.Exec) (int, error) {
	action := req.Kind == syncproto.RequestAction
	switch {
	case action && (req.Action == "" || len(req.Command) > 0):
		return 0, fleet.Errorf(fleet.CodeInvalid, "run an action in allocation %s: the request has to name an action, and no command", fleet.Short(req.Alloc))
	case !action && (len(req.Command) == 0 || req.Command[0] == "" || req.Action != ""):
		return 0, fleet.Errorf(fleet.CodeInvalid, "run a command in allocation %s: the request has to contain a command, and no action", fleet.Short(req.Alloc))
	}
	s, err := e.heldAllocStatus(ctx, req.Alloc)
	if err != nil {
		return 0, err
	}
	task, err := findTaskName(s.Desired.Alloc, req.Task)
	if err != nil {
		return 0, err
	}
	if action {
		e.log.Info("running an action beside a task", "alloc_id", req.Alloc, "task", task, "action", req.Action)
	} else {
		e.log.Info("running a command beside a task", "alloc_id", req.Alloc, "task", task, "command", req.Command[0])
	}
	return e.allocs.Exec(ctx, req.Alloc, task, x)
}

// readExec passes on the client's input to typed and its terminal sizes to sizes, until the stream ends or has
// an invalid frame. It returns why.
func readExec(talk io.Reader, typed *io.PipeWriter, sizes chan fleet.TerminalSize) error {
	frames := syncproto.NewReader(talk)
	for {
		m, err := frames.Read()
		if err != nil {
			return err
		}
		in, ok := m.(syncproto.ExecInput)
		if !ok {
			return fleet.Errorf(fleet.CodeFrameBad, "run a command: unexpected frame %s from the hub", m.FrameType())
		}
		if in.Width > 0 && in.Height > 0 {
			select {
			case <-sizes: // replace an older size that was not read
			default:
			}
			sizes <- fleet.TerminalSize{Width: in.Width, Height: in.Height}
		}
		if _, err := typed.Write(in.Stdin); err != nil && len(in.Stdin) > 0 {
			continue // the command reads no more, but its output still counts
		}
		if in.Close {
			_ = typed.Close()
		}
	}
}

// execWriter writes the frames of a command's two outputs and of its end to one stream.
type execWriter struct {
	mu     sync.Mutex
	frames *syncproto.Writer
}

// writeOutput writes one frame. It may be called from several goroutines.
func (w *execWriter) writeOutput(m syncproto.ExecOutput) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.frames.Write(m)
}

// outputOf is the io.Writer of one of a command's two outputs.
type outputOf struct {
	*execWriter
	stderr bool
}

// Write sends b to the client in frames of bounded size.
func (o outputOf) Write(b []byte) (int, error) {
	written := 0
	for written < len(b) {
		part := b[written:min(len(b), written+syncproto.MaxExecData)]
		m := syncproto.ExecOutput{Stdout: part}
		if o.stderr {
			m = syncproto.ExecOutput{Stderr: part}
		}
		if err := o.writeOutput(m); err != nil {
			return written, err
		}
		written += len(part)
	}
	return written, nil
}
