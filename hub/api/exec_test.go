package api_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/gorilla/websocket"
	nomad "github.com/hashicorp/nomad/api"

	"skerry/api"
	"skerry/fleet"
	hubapi "skerry/hub/api"
	"skerry/hub/state"
	"skerry/syncproto"
)

// edgeTalk is the hub's end of a stream to an edge, which serves the other one.
type edgeTalk struct{ net.Conn }

// serveExecWith has an edge serve each command with a function. The function's input ends when the hub hangs up.
func serveExecWith(h *fakeHub, serve func(req syncproto.Request, in *syncproto.Reader, out *syncproto.Writer)) {
	h.talk = func(ctx context.Context, req syncproto.Request) (io.ReadWriteCloser, error) {
		if slices.Contains(req.Command, "refused") {
			return nil, fleet.Errorf(fleet.CodeUnsupported, "this edge does not serve %q requests", req.Kind)
		}
		mine, its := net.Pipe()
		context.AfterFunc(ctx, func() { mine.Close() })
		go func() {
			defer its.Close()
			serve(req, syncproto.NewReader(its), syncproto.NewWriter(its))
		}()
		return edgeTalk{mine}, nil
	}
}

// serveInCapitals answers with its input in capitals, and with the size of its terminal.
func serveInCapitals(req syncproto.Request, in *syncproto.Reader, out *syncproto.Writer) {
	if req.Command[0] == "fail" {
		_ = out.Write(syncproto.ExecOutput{Exited: true, Error: fleet.Errorf(fleet.CodeInvalid, "there is no program %q", req.Command[0])})
		return
	}
	for {
		m, err := in.Read()
		if err != nil {
			return
		}
		switch said := m.(syncproto.ExecInput); {
		case said.Close:
			_ = out.Write(syncproto.ExecOutput{Stderr: []byte("bye")})
			_ = out.Write(syncproto.ExecOutput{Exited: true, Code: 3})
			return
		case said.Width > 0:
			_ = out.Write(syncproto.ExecOutput{Stdout: []byte(strings.Repeat("x", int(said.Width)))})
		default:
			_ = out.Write(syncproto.ExecOutput{Stdout: bytes.ToUpper(said.Stdin)})
		}
	}
}

func mustAlloc(tb testing.TB, h *fakeHub, c *nomad.Client) *nomad.Allocation {
	tb.Helper()
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
		tb.Fatal(err)
	}
	return &nomad.Allocation{ID: string(mustPlace(tb, h, "web")), NodeID: string(nodeID)}
}

func TestNomadClientRunsCommands(t *testing.T) {
	h, _, c := mustServe(t)
	var asked syncproto.Request
	serveExecWith(h, func(req syncproto.Request, in *syncproto.Reader, out *syncproto.Writer) {
		asked = req
		serveInCapitals(req, in, out)
	})
	alloc := mustAlloc(t, h, c)
	long := strings.Repeat("typed ", 20_000)
	var stdout, stderr bytes.Buffer
	code, err := c.Allocations().Exec(t.Context(), alloc, "", false, []string{"up", "-x"}, strings.NewReader(long), &stdout, &stderr, nil, nil)
	if err != nil || code != 3 || stdout.String() != strings.ToUpper(long) || stderr.String() != "bye" {
		t.Fatalf("code %d, %v, %d bytes, %q", code, err, stdout.Len(), stderr.String())
	}
	if asked.Task != "main" || asked.TTY || len(asked.Command) != 2 || string(asked.Alloc) != alloc.ID {
		t.Errorf("asked %+v", asked)
	}

	sizes := make(chan nomad.TerminalSize, 1)
	sizes <- nomad.TerminalSize{Height: 24, Width: 80}
	stdin, typed := io.Pipe()
	stdout.Reset()
	shown := writerFunc(func(b []byte) (int, error) {
		if stdout.Write(b); stdout.Len() == 80 {
			typed.Close()
		}
		return len(b), nil
	})
	code, err = c.Allocations().Exec(t.Context(), alloc, "main", true, []string{"up"}, stdin, shown, &stderr, sizes, nil)
	if err != nil || code != 3 || stdout.String() != strings.Repeat("x", 80) || !asked.TTY {
		t.Fatalf("on a terminal: code %d, %v, %q, tty %t", code, err, stdout.String(), asked.TTY)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestCommandsThatAreRefused(t *testing.T) {
	h, srv, c := mustServe(t)
	serveExecWith(h, serveInCapitals)
	alloc := mustAlloc(t, h, c)
	run := func(alloc *nomad.Allocation, task string, command ...string) error {
		_, err := c.Allocations().Exec(t.Context(), alloc, task, false, command, strings.NewReader(""), io.Discard, io.Discard, nil, nil)
		return err
	}
	for what, tc := range map[string]struct {
		err  error
		says string
	}{
		"a program that there is none of":     {run(alloc, "", "fail"), "there is no program"},
		"a task that there is none of":        {run(alloc, "nobody", "ls"), "nobody"},
		"an allocation that there is none of": {run(&nomad.Allocation{ID: "nope", NodeID: string(nodeID)}, "", "ls"), "not found"},
		"an older edge":                       {run(alloc, "", "refused"), `"exec"`},
	} {
		if tc.err == nil || !strings.Contains(tc.err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", what, tc.err, tc.says)
		}
	}
	base := srv.URL + "/v1/client/allocation/" + alloc.ID + "/exec?"
	for _, tc := range []struct{ query, says string }{
		{"", "not a JSON list"}, {"command=ls", "not a JSON list"}, {"command=[]", "not a JSON list"}, {`command=[""]`, "not a JSON list"},
		{`command=["ls"]&tty=maybe`, "tty"}, {`command=["` + strings.Repeat("x", 70<<10) + `"]`, "bytes"},
	} {
		_, resp, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(base, "http")+escaped(tc.query), nil)
		if err == nil {
			t.Fatalf("%.40s: taken", tc.query)
		}
		b, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(b), tc.says) {
			t.Errorf("%.40s: %d %q, want %q", tc.query, resp.StatusCode, b, tc.says)
		}
	}
	if status, text := mustGet(t, base+escaped(`command=["ls"]`)); status != http.StatusBadRequest || !strings.Contains(text, "websocket") {
		t.Errorf("without a websocket: %d %q", status, text)
	}
	if _, resp, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(base, "http")+escaped(`command=["ls"]`),
		http.Header{"Origin": {"http://elsewhere.example"}}); err == nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("a page of another origin: %v", err)
	}
	n, _ := h.store.View().Node(nodeID)
	mustApply(t, h, state.NodeStatus{Nodes: []state.NodeMissed{{NodeID: nodeID, Epoch: n.Epoch}}, EvalSeed: "s", Now: 9})
	if err := run(alloc, "", "ls"); err == nil || !strings.Contains(err.Error(), "down") {
		t.Errorf("a node that is away: %v", err)
	}
}

func escaped(query string) string {
	q, err := url.ParseQuery(query)
	if err != nil {
		return query
	}
	return q.Encode()
}

func mustGet(tb testing.TB, url string) (int, string) {
	tb.Helper()
	resp, err := http.Get(url)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// A command ends with its client, and a client learns that its edge is gone.
func TestCommandsEndWithEitherSide(t *testing.T) {
	h, srv, c := mustServe(t)
	alloc := mustAlloc(t, h, c)
	gone := make(chan error, 1)
	serveExecWith(h, func(req syncproto.Request, in *syncproto.Reader, out *syncproto.Writer) {
		if req.Command[0] == "vanish" {
			return
		}
		_ = out.Write(syncproto.ExecOutput{Stdout: []byte("there")})
		_, err := in.Read()
		gone <- err
	})
	dial := func(command string) *websocket.Conn {
		t.Helper()
		conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(srv.URL, "http")+"/v1/client/allocation/"+alloc.ID+
			"/exec?ws_handshake=true&"+escaped(`command=["`+command+`"]`), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if err := conn.WriteJSON(map[string]any{"version": 1, "auth_token": ""}); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	conn := dial("stay")
	if _, b, err := conn.ReadMessage(); err != nil || !bytes.Contains(b, []byte(`"stdout"`)) {
		t.Fatalf("%q, %v", b, err)
	}
	conn.Close() // without a word
	select {
	case err := <-gone:
		if err == nil {
			t.Error("the command is told something though nobody is there")
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the command goes on without its client")
	}
	var closed *websocket.CloseError
	if _, _, err := dial("vanish").ReadMessage(); !errors.As(err, &closed) || closed.Code != 4500 || !strings.Contains(closed.Text, "its node is lost") {
		t.Errorf("an edge that is gone: %v", err)
	}
	bad := dial("stay")
	if _, _, err := bad.ReadMessage(); err != nil {
		t.Fatal(err)
	}
	if err := bad.WriteMessage(websocket.TextMessage, []byte("{")); err != nil {
		t.Fatal(err)
	}
	if err := <-gone; err == nil {
		t.Error("what cannot be read is handed on")
	}
}

// pipes is a listener in memory.
type pipes struct {
	dialed chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.dialed:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4646} }

func (p *pipes) dialPipe(context.Context, string, string) (net.Conn, error) {
	mine, its := net.Pipe()
	p.dialed <- its
	return mine, nil
}

// The hub notices that a client has gone while the command reads no input: the hub reads nothing from the client then,
// so a ping has to show it.
func TestClientsAreMissedWhileCommandsReadNothing(t *testing.T) {
	h, srv, c := mustServe(t)
	alloc := mustAlloc(t, h, c)
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		h.talk = func(ctx context.Context, _ syncproto.Request) (io.ReadWriteCloser, error) {
			mine, its := net.Pipe() // nobody reads its end
			context.AfterFunc(ctx, func() { close(over); mine.Close(); its.Close() })
			return edgeTalk{mine}, nil
		}
		p := &pipes{dialed: make(chan net.Conn), closed: make(chan struct{})}
		server := &http.Server{Handler: srv.Config.Handler}
		served := make(chan error, 1)
		go func() { served <- server.Serve(p) }()
		dialer := websocket.Dialer{NetDialContext: p.dialPipe}
		conn, _, err := dialer.Dial("ws://localhost/v1/client/allocation/"+alloc.ID+"/exec?"+escaped(`command=["sleep","9"]`), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.WriteJSON(api.ExecInput{Stdin: &api.ExecIO{Data: []byte("typed")}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		conn.Close()
		select {
		case <-over:
		case <-time.After(time.Minute):
			t.Error("a minute after its client went the command goes on")
		}
		server.Close()
		<-served
	})
}

// A client that still types receives the last output of its command.
func TestNothingOfACommandsEndIsLost(t *testing.T) {
	h, srv, c := mustServe(t)
	alloc := mustAlloc(t, h, c)
	const pieces, size = 32, 16 << 10
	ended := make(chan struct{})
	serveExecWith(h, func(_ syncproto.Request, in *syncproto.Reader, out *syncproto.Writer) {
		defer close(ended)
		for range pieces {
			_ = out.Write(syncproto.ExecOutput{Stdout: bytes.Repeat([]byte("x"), size)})
		}
		_ = out.Write(syncproto.ExecOutput{Exited: true, Code: 7})
		for {
			if _, err := in.Read(); err != nil {
				return // the hub has hung up
			}
		}
	})
	conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(srv.URL, "http")+"/v1/client/allocation/"+alloc.ID+
		"/exec?"+escaped(`command=["cat"]`), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	typing := make(chan struct{})
	go func() {
		defer close(typing)
		for conn.WriteJSON(api.ExecInput{Stdin: &api.ExecIO{Data: make([]byte, 256<<10)}}) == nil {
		}
	}()
	<-ended
	got, code := 0, -1
	for code < 0 {
		var said api.ExecOutput
		if err := conn.ReadJSON(&said); err != nil {
			t.Fatalf("after %d of %d bytes: %v", got, pieces*size, err)
		}
		if said.Stdout != nil {
			got += len(said.Stdout.Data)
		}
		if said.Exited {
			code = said.Result.ExitCode
		}
	}
	if got != pieces*size || code != 7 {
		t.Errorf("%d bytes and exit code %d, want %d and 7", got, code, pieces*size)
	}
	conn.Close()
	<-typing
}

// Whatever a client says reaches its command in frames that each may travel, whole and in
// order, or not at all.
func FuzzExecInput(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"stdin":{"data":"aGVsbG8="}}`, `{"stdin":{"close":true}}`, `{"tty_size":{"height":-1,"width":1000000}}`,
		`{"stdin":{"data":"aGVsbG8=","close":true},"tty_size":{"height":24,"width":80}}`, `null`, `[]`,
		`{"stdin":{"data":"` + base64.StdEncoding.EncodeToString(make([]byte, 3*syncproto.MaxExecData+1)) + `"}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var in api.ExecInput
		if json.Unmarshal(b, &in) != nil {
			return
		}
		var said []byte
		closed := false
		for _, frame := range hubapi.ExecFrames(in) {
			raw, err := syncproto.EncodeMessage(frame)
			if err != nil {
				t.Fatal(err)
			}
			m, err := syncproto.DecodeMessage(frame.FrameType(), raw)
			if err != nil {
				t.Fatal(err)
			}
			if len(frame.Stdin) > 0 && closed {
				t.Error("something is said behind the end")
			}
			said, closed = append(said, m.(syncproto.ExecInput).Stdin...), closed || frame.Close
		}
		if in.Stdin != nil && (!bytes.Equal(said, in.Stdin.Data) || closed != in.Stdin.Close) {
			t.Errorf("%q became %d bytes, closed %t", b, len(said), closed)
		}
	})
}

func FuzzCloseText(f *testing.F) {
	f.Add("no program", "")
	f.Add(strings.Repeat("ä", 70), "hint")
	f.Add(strings.Repeat("\xff", 200), strings.Repeat("long ", 40))
	f.Fuzz(func(t *testing.T, message, hint string) {
		if text := hubapi.CloseText(fleet.Errorf(fleet.CodeInvalid, "%s", message).WithHint("%s", hint)); len(text) > 123 {
			t.Errorf("%q has %d bytes", text, len(text))
		} else if !utf8.ValidString(text) {
			t.Errorf("%q is no UTF-8: a client would fail the connection", text)
		}
	})
}
