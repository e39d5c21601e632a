package members_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry/fleet"
	"skerry/hub/members"
)

var key = bytes.Repeat([]byte{9}, 32)

// hub is a member whose Run can be ended, or which can die.
type hub struct {
	*members.Members
	stop func() // Run ends: it says good-bye
	wait func()
}

func mustHub(tb testing.TB, id string, key []byte, port int, seeds ...string) *hub {
	tb.Helper()
	m, err := members.Open(members.Config{
		Self: members.Member{ID: fleet.HubID(id), Region: "global", QUIC: id + ":4647", HTTP: id + ":4646"},
		Bind: "127.0.0.1", Port: port, Key: key, RejoinInterval: 100 * time.Millisecond,
		Seeds: func() []string { return seeds },
	})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(tb.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := m.Run(ctx); err != nil {
			tb.Error(err)
		}
	})
	h := &hub{Members: m, stop: cancel, wait: wg.Wait}
	tb.Cleanup(func() {
		h.mustClose(tb)
		cancel()
		wg.Wait()
	})
	return h
}

func (h *hub) mustClose(tb testing.TB) {
	tb.Helper()
	if err := h.Close(); err != nil {
		tb.Error(err)
	}
}

func (h *hub) gossipPort() int {
	a, err := net.ResolveTCPAddr("tcp", h.Addr())
	if err != nil {
		panic(err)
	}
	return a.Port
}

// mustSee waits until h lists id with a status ("": not at all).
func (h *hub) mustSee(tb testing.TB, id string, want members.Status) members.Member {
	tb.Helper()
	timeout := time.After(30 * time.Second)
	for {
		changed := h.Changed()
		var got members.Member
		for _, m := range h.Members.Members() {
			if m.ID == fleet.HubID(id) {
				got = m
			}
		}
		if got.Status == want {
			return got
		}
		select {
		case <-changed:
		case <-timeout:
			tb.Fatalf("%s is %q, want %q; all: %+v", id, got.Status, want, h.Members.Members())
		}
	}
}

func TestHubsFindEachOther(t *testing.T) {
	one := mustHub(t, "one", key, 0)
	two := mustHub(t, "two", key, 0, one.Addr())
	three := mustHub(t, "three", key, 0, one.Addr())
	for _, h := range []*hub{one, two, three} {
		for _, id := range []string{"one", "two", "three"} {
			got := h.mustSee(t, id, members.StatusAlive)
			if got.Region != "global" || got.QUIC != id+":4647" || got.HTTP != id+":4646" {
				t.Errorf("%s is listed as %+v", id, got)
			}
		}
	}
}

func TestLeavingIsToldFromFailing(t *testing.T) {
	one := mustHub(t, "one", key, 0)
	two := mustHub(t, "two", key, 0, one.Addr())
	three := mustHub(t, "three", key, 0, one.Addr())
	one.mustSee(t, "two", members.StatusAlive)
	one.mustSee(t, "three", members.StatusAlive)

	two.stop()
	two.wait()
	one.mustSee(t, "two", members.StatusLeft)
	three.mustClose(t) // without a word
	one.mustSee(t, "three", members.StatusFailed)

	mustHub(t, "three", key, three.gossipPort(), one.Addr())
	one.mustSee(t, "three", members.StatusAlive)
}

func TestAnotherKeyStaysOut(t *testing.T) {
	one := mustHub(t, "one", key, 0)
	stranger := mustHub(t, "two", bytes.Repeat([]byte{8}, 32), 0)
	if err := stranger.Join(t.Context(), []string{one.Addr()}); err == nil {
		t.Fatal("it was let in")
	}
	one.mustSee(t, "two", "")
}

func TestJoinFailsWhereNobodyAnswers(t *testing.T) {
	one := mustHub(t, "one", key, 0)
	two := mustHub(t, "two", key, 0)
	gone := two.Addr()
	two.mustClose(t)
	if err := one.Join(t.Context(), []string{gone}); err == nil {
		t.Fatal("a hub that is gone was joined")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := one.Join(ended, []string{gone}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	one := mustHub(t, "one", key, 0)
	none := func() []string { return nil }
	for name, try := range map[string]struct {
		cfg  members.Config
		want fleet.Code
	}{
		"a port in use": {members.Config{Self: members.Member{ID: "x"}, Bind: "127.0.0.1", Port: one.gossipPort(), Key: key, Seeds: none}, fleet.CodeConflict},
		"no id":         {members.Config{Bind: "127.0.0.1", Key: key, Seeds: none}, fleet.CodeInternal},
		"meta data that does not fit": {members.Config{Self: members.Member{ID: "x", Region: strings.Repeat("r", 600)},
			Bind: "127.0.0.1", Key: key, Seeds: none}, fleet.CodeInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := members.Open(try.cfg); fleet.CodeOf(err) != try.want {
				t.Fatalf("got %v, want %s", err, try.want)
			}
		})
	}
}

func TestMemberlistLogsThroughSlog(t *testing.T) {
	var mu sync.Mutex
	var out bytes.Buffer
	write := writerFunc(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return out.Write(b)
	})
	m, err := members.Open(members.Config{
		Self: members.Member{ID: "one"}, Bind: "127.0.0.1", Key: key, Seeds: func() []string { return nil },
		Log: slog.New(slog.NewTextHandler(write, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if got := out.String(); !strings.Contains(got, "level=DEBUG msg=\"memberlist: ") || !strings.Contains(got, "hub=one status=alive") {
		t.Fatalf("logged:\n%s", got)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func FuzzDecodeMember(f *testing.F) {
	f.Add([]byte{0xa3, 1, 0x61, 'r', 2, 0x61, 'q', 3, 0x61, 'h'})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, leaving, err := members.DecodeMember(b)
		if err != nil && (m != members.Member{} || leaving) {
			t.Fatalf("half decoded: %+v", m)
		}
	})
}

// TestUseKeys replaces the key of hubs that gossip, one hub after the other. Afterwards a hub with the former key is not
// heard, and one with the new key is.
func TestUseKeys(t *testing.T) {
	next, last := bytes.Repeat([]byte{7}, 32), bytes.Repeat([]byte{8}, 32)
	one := mustHub(t, "one", key, 0)
	two := mustHub(t, "two", key, 0, one.Addr())
	for _, keys := range [][][]byte{{key, next}, {next, key}, {next, key, key}, {next, last, key}, {next, last}, {last}, {next}} {
		for _, h := range []*hub{one, two} {
			if err := h.UseKeys(keys); err != nil {
				t.Fatal(err)
			}
			got, want := h.GossipKeys(), slices.CompactFunc(slices.Clone(keys), bytes.Equal)
			if !bytes.Equal(got[0], want[0]) || len(got) != len(want) || slices.ContainsFunc(want, func(key []byte) bool {
				return !slices.ContainsFunc(got, func(k []byte) bool { return bytes.Equal(k, key) })
			}) {
				t.Fatalf("in use are %x, and not %x", got, keys)
			}
		}
	}
	if err := one.Join(t.Context(), []string{two.Addr()}); err != nil {
		t.Fatalf("after the key was replaced: %v", err)
	}
	one.mustSee(t, "two", members.StatusAlive)
	if err := mustHub(t, "former", key, 0).Join(t.Context(), []string{one.Addr()}); err == nil {
		t.Error("a hub with the former key joined")
	}
	mustHub(t, "three", next, 0, one.Addr())
	one.mustSee(t, "three", members.StatusAlive)
	one.mustSee(t, "former", "")
}
