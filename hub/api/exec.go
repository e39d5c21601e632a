package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/gorilla/websocket"

	"skerry/api"
	"skerry/fleet"
	"skerry/syncproto"
)

// Bounds of a command's connection.
const (
	maxExecMessage = 1 << 20 // bytes of a message from a client
	maxExecCommand = 64 << 10
	// execPing is how often a client is asked whether it is still there, and
	// execSilence how long it may say nothing at all.
	execPing    = 20 * time.Second
	execSilence = time.Minute
	// execPatience is how long a client may take to take one message.
	execPatience = 30 * time.Second
	// execLinger is how long a client may take to close a connection that is over.
	execLinger = 5 * time.Second
	// maxCloseText is what a close frame has room for.
	maxCloseText = 123
)

// execUpgrade refuses pages of other origins (the library's default).
var execUpgrade = websocket.Upgrader{
	ReadBufferSize: 4 << 10, WriteBufferSize: 4 << 10, HandshakeTimeout: execPatience,
	Error: func(w http.ResponseWriter, _ *http.Request, status int, reason error) {
		http.Error(w, reason.Error(), status)
	},
}

// execInTask runs a command where an allocation's task runs, over a websocket. What is
// wrong with the request itself is an HTTP error; what comes later ends the
// websocket with the code 4000 and the HTTP status, and the error's text.
func (a *API) execInTask(w http.ResponseWriter, r *http.Request) {
	req, err := execRequest(r)
	if err != nil {
		a.writeError(w, err)
		return
	}
	a.serveWebsocket(w, r, func() (allocRequest, error) { return a.commandIn(r, req) })
}

// allocRequest is what the edge of an allocation is asked to run in it.
type allocRequest struct {
	alloc *fleet.Alloc
	req   syncproto.Request
}

// serveWebsocket runs, over a websocket, what an edge is asked for: where is called when the
// client is there.
func (a *API) serveWebsocket(w http.ResponseWriter, r *http.Request, where func() (allocRequest, error)) {
	conn, err := execUpgrade.Upgrade(w, r, nil)
	if err != nil {
		a.cfg.Log.Debug("no websocket", "error", err)
		return // it has answered
	}
	defer conn.Close()
	err = a.runOverWebsocket(r, &execConn{conn: conn}, where)
	closing := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	if err != nil {
		closing = websocket.FormatCloseMessage(4000+api.Status(fleet.CodeOf(err)), closeText(err))
	}
	if conn.WriteControl(websocket.CloseMessage, closing, time.Now().Add(time.Second)) == nil {
		closeAfterDelivery(conn.NetConn())
	} // else it is gone
}

// closeAfterDelivery ends a connection after what was written to it has arrived: one that is closed
// while something of its client is still unread throws away what is on its way there.
func closeAfterDelivery(conn net.Conn) {
	if c, ok := conn.(interface{ CloseWrite() error }); ok && c.CloseWrite() != nil {
		return
	}
	if conn.SetReadDeadline(time.Now().Add(execLinger)) == nil {
		_, _ = io.Copy(io.Discard, conn) // until it closes its side, or its time is over
	}
}

// execRequest reads what is asked, but for the allocation.
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

// websocketRequest begins to read what is to be run over a websocket.
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

// runOverWebsocket serves a command over a websocket until either is over.
func (a *API) runOverWebsocket(r *http.Request, client *execConn, where func() (allocRequest, error)) error {
	if err := client.readHandshake(r.URL.Query().Get("ws_handshake") == "true"); err != nil {
		return err
	}
	to, err := where()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	edge, err := a.cfg.Edges.Talk(ctx, to.alloc.NodeID, to.req)
	if fleet.CodeOf(err) == fleet.CodeUnsupported { // its release is older
		e := fleet.AsError(err)
		return fleet.Errorf(e.Code, "node %s: %s", to.alloc.NodeName, e.Message).WithHint("%s", e.Hint)
	}
	if err != nil {
		return err
	}
	defer edge.Close()
	var serving sync.WaitGroup
	serving.Go(func() {
		defer cancel() // the client is gone, or the edge takes nothing: the command ends
		a.cfg.Log.Debug("command's client is gone", "alloc", to.alloc.ID, "error", client.forwardInput(edge))
	})
	serving.Go(func() {
		defer cancel() // nothing is read of a client while the edge takes nothing
		client.keepAlive(ctx)
	})
	err = client.forwardOutput(edge)
	cancel()
	client.endReading()
	serving.Wait()
	return err
}

// commandIn finds the allocation in which a command is to run.
func (a *API) commandIn(r *http.Request, req syncproto.Request) (allocRequest, error) {
	v, al, err := a.freshAlloc(r)
	if err != nil {
		return allocRequest{}, err
	}
	if req.Task, err = taskOf(al, req.Task); err != nil {
		return allocRequest{}, err
	}
	req.Alloc = al.ID
	return allocRequest{al, req}, checkAllocReachable(v, al, "run a command beside", req.Task)
}

// execConn is a client's websocket.
type execConn struct {
	conn *websocket.Conn

	mu    sync.Mutex
	ended bool // nothing more is read
}

// readHandshake says how much is taken, and reads what Nomad's UI says first.
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
		return fleet.Errorf(fleet.CodeInvalid, "run a command: version %d of the handshake is not known", first.Version)
	}
	return nil
}

func (c *execConn) extendReadDeadline() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return errors.New("the command has ended")
	}
	return c.conn.SetReadDeadline(time.Now().Add(execSilence))
}

// endReading ends typed, whatever it waits for.
func (c *execConn) endReading() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	_ = c.conn.SetReadDeadline(time.Unix(1, 0)) // one that is closed reads no more either
}

// forwardInput hands on what a client says until it is gone.
func (c *execConn) forwardInput(edge io.Writer) error {
	frames := syncproto.NewWriter(edge)
	for {
		if err := c.extendReadDeadline(); err != nil { // also where the edge took its time
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

// execFrames are what an edge is told; none of a message that only says that the
// client is there.
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

func terminalSize(n int) uint16 { return uint16(min(max(n, 0), 1<<16-1)) }

// keepAlive asks now and then whether a client is there: one that is not answers
// nothing, and reading from it ends.
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

// forwardOutput hands on what a command says until it has ended.
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
			return said.Error
		}
		if err := c.writeOutput(said); err != nil || said.Exited {
			return err
		}
	}
}

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

// closeText is an error as a close frame carries it: browsers fail on what is no UTF-8.
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
