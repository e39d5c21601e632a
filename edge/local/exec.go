package local

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"skerry/fleet"
)

// A command runs over a connection that is upgraded. Both sides send frames: a kind, the length of the content in four
// bytes, and the content.

// execProtocol is the protocol of the upgraded connection.
const execProtocol = "skerry-local-exec/1"

// maxExecFrame bounds the content of a frame, in bytes.
const maxExecFrame = 32 << 10

// execKind is the kind of a frame.
type execKind byte

const (
	execStdin  execKind = 1 // without content: the end
	execSize   execKind = 2 // columns and rows of the terminal, two bytes each
	execStdout execKind = 3
	execStderr execKind = 4
	execExit   execKind = 5 // execResult as JSON: the last frame
)

// execResult is how a command ended.
type execResult struct {
	Code  int
	Error *fleet.Error `json:",omitempty"`
}

// ExecRequest is a request to run a command beside a task.
type ExecRequest struct {
	Alloc   fleet.AllocID
	Task    string // "": the only task
	Command []string
	TTY     bool
}

// writeExecFrame writes one frame.
func writeExecFrame(w io.Writer, kind execKind, content []byte) error {
	frame := binary.BigEndian.AppendUint32([]byte{byte(kind)}, uint32(len(content)))
	_, err := w.Write(append(frame, content...))
	return err
}

// readExecFrame reads one frame. The content is valid until buf is used again.
func readExecFrame(r io.Reader, buf []byte) (execKind, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > uint32(len(buf)) {
		return 0, nil, fmt.Errorf("a frame of %d bytes: at most %d are allowed", n, len(buf))
	}
	_, err := io.ReadFull(r, buf[:n])
	return execKind(head[0]), buf[:n], err
}

// execStream writes the frames of several goroutines to one connection.
type execStream struct {
	mu   sync.Mutex
	conn io.Writer
}

func (s *execStream) writeFrame(kind execKind, content []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return writeExecFrame(s.conn, kind, content)
}

// execOutput is one output of a command as an io.Writer.
type execOutput struct {
	*execStream
	kind execKind
}

// Write sends b in frames of bounded size.
func (o execOutput) Write(b []byte) (int, error) {
	for sent := 0; sent < len(b); sent += maxExecFrame {
		if err := o.writeFrame(o.kind, b[sent:min(len(b), sent+maxExecFrame)]); err != nil {
			return sent, err
		}
	}
	return len(b), nil
}

// serveExec runs a command for a client. The command ends with the connection.
func (s *Server) serveExec(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	req := ExecRequest{Alloc: fleet.AllocID(q.Get("alloc")), Task: q.Get("task"), Command: q["command"], TTY: q.Get("tty") == "true"}
	if r.Header.Get("Upgrade") != execProtocol || len(req.Command) == 0 || req.Command[0] == "" {
		s.writeError(w, fleet.Errorf(fleet.CodeInvalid, "run a command in allocation %s: the request names no command, or another protocol than %s", req.Alloc, execProtocol))
		return
	}
	conn, both, err := http.NewResponseController(w).Hijack()
	if err != nil {
		s.writeError(w, fmt.Errorf("run a command in allocation %s: %w", req.Alloc, err))
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Time{})
	if _, err := fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", execProtocol); err != nil {
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	stdin, typed := io.Pipe()
	sizes := make(chan fleet.TerminalSize, 1)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer cancel() // the client is gone
		_ = typed.CloseWithError(readExecInput(both.Reader, typed, sizes))
	})
	out := &execStream{conn: conn}
	code, err := s.agent.Exec(ctx, req, fleet.Exec{
		Command: req.Command, TTY: req.TTY, Stdin: stdin, Stdout: execOutput{out, execStdout}, Stderr: execOutput{out, execStderr}, Sizes: sizes,
	})
	result, failed := json.Marshal(execResult{Code: code, Error: fleet.AsError(err)})
	if failed == nil {
		_ = out.writeFrame(execExit, result) // a client that is gone needs no result
	}
	_ = stdin.Close()
	_ = conn.Close()
	reading.Wait()
}

// readExecInput passes on the input and the sizes of the terminal, until the connection ends or has an invalid frame. It
// returns why.
func readExecInput(r io.Reader, typed *io.PipeWriter, sizes chan fleet.TerminalSize) error {
	buf := make([]byte, maxExecFrame)
	for {
		kind, content, err := readExecFrame(r, buf)
		switch {
		case err != nil:
			return err
		case kind == execStdin && len(content) == 0:
			_ = typed.Close()
		case kind == execStdin:
			_, _ = typed.Write(content) // a command that reads no more may still write
		case kind == execSize && len(content) == 4:
			select {
			case <-sizes: // replace an older size that was not read
			default:
			}
			sizes <- fleet.TerminalSize{Width: binary.BigEndian.Uint16(content), Height: binary.BigEndian.Uint16(content[2:])}
		default:
			return fmt.Errorf("unexpected frame of kind %d", kind)
		}
	}
}

// Exec runs a command beside a task, with x's input and outputs, and returns its exit code.
func (c *Client) Exec(ctx context.Context, req ExecRequest, x fleet.Exec) (code int, err error) {
	q := url.Values{"alloc": {string(req.Alloc)}, "task": {req.Task}, "command": req.Command, "tty": {strconv.FormatBool(req.TTY)}}
	u := url.URL{Scheme: "http", Host: "edge", Path: "/v1/exec", RawQuery: q.Encode()}
	ask, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), nil)
	if err != nil {
		return 0, fmt.Errorf("ask the agent to run a command: %w", err)
	}
	ask.Header.Set("Connection", "Upgrade")
	ask.Header.Set("Upgrade", execProtocol)
	resp, err := c.sendHTTP(ctx, ask, "/v1/exec")
	if err != nil {
		return 0, err
	}
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if resp.StatusCode != http.StatusSwitchingProtocols || !ok {
		return 0, errors.Join(fmt.Errorf("ask the agent to run a command: %s", resp.Status), resp.Body.Close())
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close()
	in := &execStream{conn: conn}
	go sendExecInput(in, x.Stdin) // it ends with the input, or with the process
	if x.Sizes != nil {
		go sendExecSizes(ctx, in, x.Sizes)
	}
	return readExecOutput(ctx, bufio.NewReader(conn), x)
}

// sendExecInput sends an input until its end.
func sendExecInput(to *execStream, from io.Reader) {
	buf := make([]byte, maxExecFrame)
	for {
		n, err := from.Read(buf)
		if n > 0 && to.writeFrame(execStdin, buf[:n]) != nil {
			return
		}
		if err != nil {
			_ = to.writeFrame(execStdin, nil)
			return
		}
	}
}

// sendExecSizes sends the sizes of the terminal until ctx ends.
func sendExecSizes(ctx context.Context, to *execStream, sizes <-chan fleet.TerminalSize) {
	for {
		select {
		case size := <-sizes:
			if to.writeFrame(execSize, binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, size.Width), size.Height)) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// readExecOutput passes on the outputs of a command until its end, and returns its exit code.
func readExecOutput(ctx context.Context, r io.Reader, x fleet.Exec) (code int, err error) {
	buf := make([]byte, maxExecFrame)
	for {
		kind, content, err := readExecFrame(r, buf)
		switch {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
			return 0, fleet.Errorf(fleet.CodeUnavailable, "the agent ended before the command did")
		case err != nil:
			return 0, fmt.Errorf("read the output of a command: %w", err)
		case kind == execStdout:
			_, err = x.Stdout.Write(content)
		case kind == execStderr:
			_, err = x.Stderr.Write(content)
		case kind == execExit:
			var result execResult
			if err := json.Unmarshal(content, &result); err != nil {
				return 0, fmt.Errorf("read how a command ended: %w", err)
			}
			if result.Error != nil {
				return 0, result.Error
			}
			return result.Code, nil
		}
		if err != nil {
			return 0, fmt.Errorf("write the output of a command: %w", err)
		}
	}
}
