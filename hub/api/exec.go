package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/gorilla/websocket"

	"skerry/api"
	"skerry/fleet"
	"skerry/fleet/acl"
	"skerry/syncproto"
)

// Bounds of the websocket of a command or action.
const (
	maxExecMessage = 1 << 20 // bytes of a message from a client
	maxExecCommand = 64 << 10
	// execPing is the time between two pings to a client, and execSilence the time after which a client that sends
	// nothing, not even pongs, is given up.
	execPing    = 20 * time.Second
	execSilence = time.Minute
	// execPatience is how long the write of one message to a client may take.
	execPatience = 30 * time.Second
	// execLinger is how long the hub waits for the client to close its side.
	execLinger = 5 * time.Second
	// maxCloseText is the largest text of a close frame, in bytes.
	maxCloseText = 123
)

// execUpgrade refuses pages of other origins (the library's default).
var execUpgrade = websocket.Upgrader{
	ReadBufferSize: 4 << 10, WriteBufferSize: 4 << 10, HandshakeTimeout: execPatience,
	Error: func(w http.ResponseWriter, _ *http.Request, status int, reason error) {
		http.Error(w, reason.Error(), status)
	},
}

// execInTask serves a websocket over which it runs a command in the environment of a task. A bad request is an HTTP
// error. Later errors close the websocket with the code 4000 plus the HTTP status, and the error's text.
func (a *API) execInTask(w http.ResponseWriter, r *http.Request) {
	req, err := execRequest(r)
	if err != nil {
		a.writeError(w, err)
		return
	}
	a.serveWebsocket(w, r, func() (allocRequest, error) { return a.commandIn(r, req) })
}

// allocRequest is a request to the edge of an allocation to run a command or action there.
type allocRequest struct {
	alloc *fleet.Alloc
	req   syncproto.Request
}

// serveWebsocket upgrades the connection to a websocket and runs a command over it until the command ends. It calls
// findRequest for the command and its allocation once the websocket is open. Errors go to the client in the close
// frame.
func (a *API) serveWebsocket(w http.ResponseWriter, r *http.Request, findRequest func() (allocRequest, error)) {
	conn, err := execUpgrade.Upgrade(w, r, nil)
	if err != nil {
		a.cfg.Log.Debug("websocket not opened", "error", err)
		noteExec(r, fleet.Errorf(fleet.CodeInvalid, "open the websocket: %w", err))
		return // Upgrade has answered, or has closed the connection
	}
	defer conn.Close()
	err = a.runOverWebsocket(r, &execConn{conn: conn}, findRequest)
	closing := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	if err != nil {
		closing = websocket.FormatCloseMessage(4000+api.Status(fleet.CodeOf(err)), closeText(err))
	}
	if conn.WriteControl(websocket.CloseMessage, closing, time.Now().Add(time.Second)) == nil {
		closeAfterDelivery(conn.NetConn())
	} // else the client is gone
}

// closeAfterDelivery closes the writing side and reads until the client closes, for at most execLinger: closing a
// connection with unread input may discard the bytes written to it.
func closeAfterDelivery(conn net.Conn) {
	if c, ok := conn.(interface{ CloseWrite() error }); ok && c.CloseWrite() != nil {
		return
	}
	if conn.SetReadDeadline(time.Now().Add(execLinger)) == nil {
		_, _ = io.Copy(io.Discard, conn) // until it closes its side, or its time is over
	}
}

// execRequest reads the command and task that a request names. The allocation is not filled in.
func execRequest(r *http.Request) (syncproto.Request, error) {
	req, err := websocketRequest(r, syncproto.RequestExec, "skerry alloc exec")
	if err != nil {
		return req, err
	}
	text := r.URL.Query().Get("command")
	if len(text) > maxExecCommand {
		return req, fleet.Errorf(fleet.CodeInvalid, "run a command: it has %d bytes, at most %d are allowed", len(text), maxExecCommand)
	}
	if err := json.Unmarshal([]byte(text), &req.Command); err != nil || len(req.Command) == 0 || req.Command[0] == "" {
		return req, fleet.Errorf(fleet.CodeInvalid, "run a command: the parameter command is not a JSON list of a program and its arguments").
			WithHint(`write it like command=["ls","-l"]`)
	}
	return req, nil
}

// websocketRequest reads the parameters task and tty that commands and actions share. It fails if the request is no
// websocket upgrade; the hint then names the CLI command.
func websocketRequest(r *http.Request, kind, command string) (syncproto.Request, error) {
	p := r.URL.Query()
	req := syncproto.Request{Kind: kind, Task: p.Get("task")}
	if !websocket.IsWebSocketUpgrade(r) {
		return req, fleet.Errorf(fleet.CodeInvalid, "run a command: this endpoint needs a websocket").
			WithHint("use %s, or a websocket client", command)
	}
	if s := p.Get("tty"); s != "" {
		var err error
		if req.TTY, err = strconv.ParseBool(s); err != nil {
			return req, fleet.Errorf(fleet.CodeInvalid, "run a command: tty %q is neither true nor false", s)
		}
	}
	return req, nil
}

// runOverWebsocket finds the command that a client asks for, and runs it. The request is in the audit before the edge
// has it.
func (a *API) runOverWebsocket(r *http.Request, client *execConn, findRequest func() (allocRequest, error)) error {
	var to allocRequest
	err := client.readHandshake(r.URL.Query().Get("ws_handshake") == "true")
	if err == nil {
		to, err = findRequest()
	}
	noteExec(r, err)
	if err != nil {
		return err
	}
	if err = a.runOnEdge(r, client, to); errors.As(err, new(edgeError)) {
		noteExec(r, err) // a second entry: the command did not run, or not to its end
	}
	return err
}

// edgeError says that an edge could not be asked to run a command, or that the edge failed to run it.
type edgeError struct{ error }

func (e edgeError) Unwrap() error { return e.error }

// runOnEdge has the edge run a command, and copies its input and output until it has ended or one side is gone.
// It waits for its goroutines before it returns.
func (a *API) runOnEdge(r *http.Request, client *execConn, to allocRequest) error {
	r, stop := a.whileGranted(r)
	defer stop()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	edge, err := a.cfg.Edges.Talk(ctx, to.alloc.NodeID, to.req)
	if fleet.CodeOf(err) == fleet.CodeUnsupported { // the edge is of an older release
		e := fleet.AsError(err)
		err = fleet.Errorf(e.Code, "node %s: %s", to.alloc.NodeName, e.Message).WithHint("%s", e.Hint)
	}
	if err != nil {
		return edgeError{err}
	}
	defer edge.Close()
	var serving sync.WaitGroup
	serving.Go(func() {
		defer cancel() // the client is gone, or the edge accepts no input: the command ends
		a.cfg.Log.Debug("command's client is gone", "alloc", to.alloc.ID, "error", client.forwardInput(edge))
	})
	serving.Go(func() {
		defer cancel() // detects a lost client while the edge accepts no input, and nothing is read
		client.keepAlive(ctx)
	})
	err = client.forwardOutput(edge)
	cancel()
	client.endReading()
	serving.Wait()
	return err
}

// commandIn fills in the allocation and task of a command's request from the path and the state. It fails if the
// allocation has ended or its node is unreachable.
func (a *API) commandIn(r *http.Request, req syncproto.Request) (allocRequest, error) {
	v, al, err := a.freshAlloc(r)
	if err != nil {
		return allocRequest{}, err
	}
	if req.Task, err = taskOf(al, req.Task); err != nil {
		return allocRequest{}, err
	}
	req.Alloc = al.ID
	if err := a.checkNodeExec(r, al, req.Task); err != nil {
		return allocRequest{}, err
	}
	return allocRequest{al, req}, checkAllocReachable(v, al, "run a command in", req.Task)
}

// checkNodeExec requires alloc-node-exec for a task that is not isolated from its node's file system: a command in it
// can do what the edge's user can. A driver that this release does not know is taken for such a one.
func (a *API) checkNodeExec(r *http.Request, al *fleet.Alloc, task string) error {
	if g := al.Group(); g != nil {
		if t := g.Task(task); t != nil && slices.Contains(a.cfg.Drivers.Isolated, t.Driver) {
			return nil
		}
	}
	needed := acl.Requirement{Kind: acl.KindNamespace, Name: al.Namespace, Capability: acl.AllocNodeExec}
	if g := grantOf(r); !g.rules.Allows(needed) {
		return refusal(g.rules, needed)
	}
	return nil
}

// execConn is the client's side of a command: its websocket. One goroutine reads it, one writes output.
type execConn struct {
	conn *websocket.Conn

	mu    sync.Mutex
	ended bool // endReading was called: reads fail
}

// readHandshake sets the read limit, read deadline and pong handler of the websocket. If handshake is true, it reads
// the message with a version that Nomad's UI sends first.
func (c *execConn) readHandshake(handshake bool) error {
	c.conn.SetReadLimit(maxExecMessage)
	if err := c.extendReadDeadline(); err != nil {
		return err
	}
	c.conn.SetPongHandler(func(string) error { return c.extendReadDeadline() })
	if !handshake {
		return nil
	}
	var first struct {
		Version int `json:"version"`
	}
	if err := c.conn.ReadJSON(&first); err != nil {
		return fleet.Errorf(fleet.CodeInvalid, "run a command: read the first message: %v", err)
	}
	if first.Version != 1 {
		return fleet.Errorf(fleet.CodeInvalid, "run a command: version %d of the handshake is not supported, only 1", first.Version)
	}
	return nil
}

// extendReadDeadline gives the client another execSilence to send something. It fails after endReading.
func (c *execConn) extendReadDeadline() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return errors.New("the command has ended")
	}
	return c.conn.SetReadDeadline(time.Now().Add(execSilence))
}

// endReading makes the current and every later read of the websocket fail at once. So forwardInput returns.
func (c *execConn) endReading() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	_ = c.conn.SetReadDeadline(time.Unix(1, 0)) // fails only if it is closed: then reads fail, too
}

// forwardInput copies the client's input to the edge until a read or write fails. It always returns an error.
func (c *execConn) forwardInput(edge io.Writer) error {
	frames := syncproto.NewWriter(edge)
	for {
		if err := c.extendReadDeadline(); err != nil { // also after an edge that was slow to accept input
			return err
		}
		var in api.ExecInput
		if err := c.conn.ReadJSON(&in); err != nil {
			return err
		}
		for _, frame := range execFrames(in) {
			if err := frames.Write(frame); err != nil {
				return err
			}
		}
	}
}

// execFrames returns the frames for an edge of one message of a client: terminal size, input in pieces, end of
// input. A heartbeat has none.
func execFrames(in api.ExecInput) []syncproto.ExecInput {
	var frames []syncproto.ExecInput
	if in.TTYSize != nil {
		frames = append(frames, syncproto.ExecInput{Width: terminalSize(in.TTYSize.Width), Height: terminalSize(in.TTYSize.Height)})
	}
	if in.Stdin == nil {
		return frames
	}
	for data := in.Stdin.Data; len(data) > 0; {
		part := data[:min(len(data), syncproto.MaxExecData)]
		frames = append(frames, syncproto.ExecInput{Stdin: part})
		data = data[len(part):]
	}
	if in.Stdin.Close {
		frames = append(frames, syncproto.ExecInput{Close: true})
	}
	return frames
}

// terminalSize limits a terminal's width or height to the range of the protocol.
func terminalSize(n int) uint16 { return uint16(min(max(n, 0), 1<<16-1)) }

// keepAlive sends a ping to the client every execPing until ctx ends or a ping cannot be written. Without pongs the
// read deadline passes, and forwardInput ends.
func (c *execConn) keepAlive(ctx context.Context) {
	ticker := time.NewTicker(execPing)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if c.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(execPatience)) != nil {
				return
			}
		}
	}
}

// forwardOutput copies a command's output from the edge to the client. It returns nil once the command has exited,
// else the error of the edge or of the connection.
func (c *execConn) forwardOutput(edge io.Reader) error {
	frames := syncproto.NewReader(edge)
	for {
		m, err := frames.Read()
		if err != nil {
			return fleet.Errorf(fleet.CodeUnavailable, "run a command: the connection to its node is lost: %v", err)
		}
		said, ok := m.(syncproto.ExecOutput)
		if !ok {
			return fleet.Errorf(fleet.CodeFrameBad, "run a command: the node sent an unexpected frame of type %s", m.FrameType())
		}
		if said.Error != nil {
			return edgeError{said.Error}
		}
		if err := c.writeOutput(said); err != nil || said.Exited {
			return err
		}
	}
}

// writeOutput sends one piece of output to the client; the last one closes both streams and has the exit code.
func (c *execConn) writeOutput(said syncproto.ExecOutput) error {
	var out []api.ExecOutput
	if len(said.Stdout) > 0 {
		out = append(out, api.ExecOutput{Stdout: &api.ExecIO{Data: said.Stdout}})
	}
	if len(said.Stderr) > 0 {
		out = append(out, api.ExecOutput{Stderr: &api.ExecIO{Data: said.Stderr}})
	}
	if said.Exited {
		end := &api.ExecIO{Close: true}
		out = append(out, api.ExecOutput{Stdout: end}, api.ExecOutput{Stderr: end}, api.ExecOutput{Exited: true, Result: &api.ExecResult{ExitCode: said.Code}})
	}
	for _, m := range out {
		if err := c.conn.SetWriteDeadline(time.Now().Add(execPatience)); err != nil {
			return err
		}
		if err := c.conn.WriteJSON(m); err != nil {
			return err
		}
	}
	return nil
}

// closeText returns an error's text for a close frame: valid UTF-8 (browsers fail on anything else) of at most
// maxCloseText bytes, without the hint or cut if it is too long.
func closeText(err error) string {
	text := strings.ToValidUTF8(fleet.AsError(err).Error(), "?")
	if len(text) <= maxCloseText {
		return text
	}
	text = strings.ToValidUTF8(fleet.AsError(err).Message, "?") // without its hint
	if len(text) <= maxCloseText {
		return text
	}
	cut := maxCloseText - len("…")
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
