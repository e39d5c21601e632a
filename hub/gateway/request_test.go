package gateway_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/syncproto"
	"skerry/syncproto/transport/transporttest"
)

// Logs come over the edge's own connection.
func TestLogs(t *testing.T) {
	t.Parallel()
	h := newHub(t, options{})
	req := syncproto.Request{Kind: syncproto.RequestLogs, Alloc: alloc1, Task: "t", Stream: "stdout", Origin: "start"}
	if _, err := h.gateway.Logs(t.Context(), node1, req); fleet.CodeOf(err) != fleet.CodeUnavailable {
		t.Errorf("logs of a node that is not connected: %v, want unavailable", err)
	}
	w := h.mustDial(t, node1)
	w.openSession(1, "agent-1")
	served := make(chan error, 1)
	go func() { served <- w.serveLogs("hello\nworld\n") }()
	out, err := h.gateway.Logs(t.Context(), node1, req)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(out)
	if err != nil || string(text) != "hello\nworld\n" {
		t.Errorf("read %q (%v)", text, err)
	}
	if err := out.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}

	go func() { served <- w.serveLogs("") }()
	ctx, cancel := context.WithCancel(t.Context())
	out, err = h.gateway.Logs(ctx, node1, req)
	if err != nil {
		t.Fatal(err)
	}
	cancel() // the reader went away: so does the stream
	if _, err := io.ReadAll(out); err == nil {
		t.Error("reading went on after the context ended")
	}
	<-served
}

// TestLogsOfSilentEdge asks for logs of an edge whose link has just gone, and that is not known to be away yet: the
// request fails within two seconds, in virtual time.
func TestLogsOfSilentEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC))) // in 2000, a CA takes the clock for wrong
		network := transporttest.New(t, 20*time.Millisecond)
		path := network.Path(t, "10.1.0.1", 1)
		h := newHub(t, options{net: network, path: path})
		w := h.mustDial(t, node1)
		w.openSession(1, "agent-1")
		path.Cut()
		began := time.Now()
		req := syncproto.Request{Kind: syncproto.RequestLogs, Alloc: alloc1, Task: "t", Stream: "stdout", Origin: "start"}
		_, err := h.gateway.Logs(t.Context(), node1, req)
		if fleet.CodeOf(err) != fleet.CodeUnavailable || fleet.AsError(err).Hint == "" {
			t.Errorf("logs of an edge that is silent: %v, want unavailable and a hint", err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// serveLogs answers one request with text; an empty text is a task that says
// nothing, followed for as long as the hub reads.
func (w *testEdge) serveLogs(text string) error {
	stream, err := w.conn.Accept(context.Background())
	if err != nil {
		return err
	}
	r := syncproto.NewReader(stream)
	if m, err := r.Read(); err != nil {
		return err
	} else if q, ok := m.(syncproto.Request); !ok || q.Kind != syncproto.RequestLogs || q.Alloc != alloc1 {
		return fmt.Errorf("the request is %+v", m)
	}
	if err := syncproto.NewWriter(stream).Write(syncproto.Reply{}); err != nil {
		return err
	}
	if text == "" {
		_, err := io.Copy(io.Discard, stream)
		return err
	}
	if _, err := io.WriteString(stream, text); err != nil {
		return err
	}
	return stream.CloseWrite()
}
