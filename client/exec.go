package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"skerry/api"
	"skerry/fleet"
)

// execHeartbeat is the time between two heartbeats on a command's websocket.
const execHeartbeat = 10 * time.Second

// ExecOptions say where a command runs.
type ExecOptions struct {
	Task string // "": the only one
	TTY  bool
}

// ExecAlloc runs a command in an allocation and returns its exit code. A read of x.Stdin may go on
// when it returns: that of a terminal cannot be interrupted.
func (c *Client) ExecAlloc(ctx context.Context, id fleet.AllocID, command []string, o ExecOptions, x fleet.Exec) (int, error) {
	text, err := json.Marshal(command)
	if err != nil {
		return 0, fmt.Errorf("run a command: %w", err)
	}
	q := url.Values{"command": {string(text)}, "task": {o.Task}, "tty": {flag(o.TTY)}}
	return c.runOverWebsocket(ctx, allocClientPath(id, "exec"), q, x)
}

// ActionQuery names an action of a job. Group and Alloc may be "".
type ActionQuery struct {
	Job    fleet.JobID
	Action string
	Group  string
	Alloc  fleet.AllocID // where it runs; "": in any allocation
}

// RunAction runs an action of a job as ExecAlloc runs a command.
func (c *Client) RunAction(ctx context.Context, a ActionQuery, o ExecOptions, x fleet.Exec) (int, error) {
	q := url.Values{"action": {a.Action}, "group": {a.Group}, "allocID": {string(a.Alloc)}, "task": {o.Task}, "tty": {flag(o.TTY)}}
	return c.runOverWebsocket(ctx, jobPath(a.Job, "/action"), q, x)
}

// runOverWebsocket runs a command at path: it copies input and output of x over a websocket until the command ends
// or ctx ends, and returns the exit code.
func (c *Client) runOverWebsocket(ctx context.Context, path string, q url.Values, x fleet.Exec) (int, error) {
	transport := c.http.Transport.(*http.Transport)
	dialer := websocket.Dialer{NetDialContext: transport.DialContext, TLSClientConfig: transport.TLSClientConfig, HandshakeTimeout: 2 * Wait}
	conn, resp, err := dialer.DialContext(ctx, strings.Replace(c.requestURL(path, q), "http", "ws", 1), c.header)
	if err != nil {
		if resp != nil {
			return 0, readErrorAnswer(resp, path)
		}
		return 0, c.unreachableError(ctx, path, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	s := &execSession{conn: conn, x: x}
	over := make(chan struct{})
	var beating sync.WaitGroup
	defer beating.Wait()
	defer close(over)
	beating.Go(func() { s.sendHeartbeats(over) })
	go s.copyTypedInput() // ends with the input, or with the program: see ExecAlloc
	code, err := s.copyExecOutput()
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	return code, err
}

// execSession is one command's connection.
type execSession struct {
	conn *websocket.Conn
	x    fleet.Exec
	mu   sync.Mutex // for writing
}

// writeExecInput sends a message to the command. Several goroutines may call it.
func (s *execSession) writeExecInput(in api.ExecInput) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn.WriteJSON(in)
}

// copyTypedInput sends what it reads from Stdin, until Stdin ends or sending fails. copyExecOutput reports that
// failure.
func (s *execSession) copyTypedInput() {
	buf := make([]byte, 8<<10)
	for {
		n, err := s.x.Stdin.Read(buf)
		if n > 0 && s.writeExecInput(api.ExecInput{Stdin: &api.ExecIO{Data: buf[:n]}}) != nil {
			return
		}
		if err != nil {
			_ = s.writeExecInput(api.ExecInput{Stdin: &api.ExecIO{Close: true}})
			return
		}
	}
}

// sendHeartbeats sends the terminal's new sizes, and a heartbeat every execHeartbeat, until over is closed.
func (s *execSession) sendHeartbeats(over <-chan struct{}) {
	ticker := time.NewTicker(execHeartbeat)
	defer ticker.Stop()
	for {
		var in api.ExecInput
		select {
		case <-over:
			return
		case size := <-s.x.Sizes:
			in.TTYSize = &api.ExecSize{Width: int(size.Width), Height: int(size.Height)}
		case <-ticker.C:
		}
		if s.writeExecInput(in) != nil {
			return
		}
	}
}

// copyExecOutput writes the command's output to Stdout and Stderr until it ends, and returns its exit code.
func (s *execSession) copyExecOutput() (int, error) {
	for {
		var out api.ExecOutput
		if err := s.conn.ReadJSON(&out); err != nil {
			var closed *websocket.CloseError
			if errors.As(err, &closed) && closed.Text != "" {
				return 0, fleet.Errorf(codeOfClose(closed.Code), "%s", closed.Text)
			}
			return 0, fleet.Errorf(fleet.CodeUnavailable, "run a command: the connection to the hub is lost: %v", err)
		}
		var err error
		switch {
		case out.Stdout != nil:
			_, err = s.x.Stdout.Write(out.Stdout.Data)
		case out.Stderr != nil:
			_, err = s.x.Stderr.Write(out.Stderr.Data)
		case out.Exited && out.Result != nil:
			return out.Result.ExitCode, nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// codeOfClose returns the error code for the close code of a websocket; CodeInternal: it is not known.
func codeOfClose(code int) fleet.Code {
	for _, c := range []fleet.Code{fleet.CodeInvalid, fleet.CodeNotFound, fleet.CodeConflict, fleet.CodeUnavailable} {
		if 4000+api.Status(c) == code {
			return c
		}
	}
	return fleet.CodeInternal
}
