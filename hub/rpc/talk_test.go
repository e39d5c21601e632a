package rpc_test

import (
	"bufio"
	"context"
	"io"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/rpc"
)

func TestTalk(t *testing.T) {
	const most = 4
	ended := make(chan struct{}, 2*most)
	server := mustHub(t, "one", anyPort, rpc.Config{MaxStreams: most}, func(p *rpc.Peers) {
		p.HandleTalk("echo", func(ctx context.Context, from string, body []byte, talk rpc.Talk) error {
			if string(body) == "refuse" {
				return fleet.Errorf(fleet.CodeNotFound, "nothing to talk about")
			}
			defer func() { ended <- struct{}{} }()
			if _, err := talk.Write(nil); err != nil {
				return err
			}
			lines := bufio.NewScanner(talk)
			for lines.Scan() {
				if lines.Text() == "end" {
					return fleet.Errorf(fleet.CodeConflict, "enough")
				}
				if _, err := io.WriteString(talk, from+": "+lines.Text()+"\n"); err != nil {
					return err
				}
			}
			<-ctx.Done()
			return ctx.Err()
		})
	})
	client := mustHub(t, "two", anyPort, rpc.Config{}, nil)
	if _, err := client.peers.Talk(t.Context(), server.addr, "echo", []byte("refuse")); fleet.CodeOf(err) != fleet.CodeNotFound {
		t.Fatalf("got %v", err)
	}
	open := func() io.ReadWriteCloser {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel() // from here on the stream is Close's
		talk, err := client.peers.Talk(ctx, server.addr, "echo", nil)
		if err != nil {
			t.Fatal(err)
		}
		return talk
	}
	talk := open()
	answers := bufio.NewReader(talk)
	for _, say := range []string{"a", "b"} {
		if _, err := io.WriteString(talk, say+"\n"); err != nil {
			t.Fatal(err)
		}
		if got, err := answers.ReadString('\n'); err != nil || got != "two: "+say+"\n" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if _, err := io.WriteString(talk, "end\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := answers.ReadByte(); fleet.CodeOf(err) != fleet.CodeConflict {
		t.Fatalf("it ended with %v", err)
	}
	mustClose(t, ended, "the handler goes on")
	talk.Close()
	open().Close()
	mustClose(t, ended, "the handler goes on though its caller is gone")

	for n := 0; ; n++ { // a slot is free a little after its handler has ended
		talk, err := client.peers.Talk(t.Context(), server.addr, "echo", nil)
		if fleet.CodeOf(err) == fleet.CodeUnavailable {
			break
		}
		if err != nil || n == most {
			t.Fatalf("%d at a time, of %d: %v", n+1, most, err)
		}
		defer talk.Close()
	}
}
