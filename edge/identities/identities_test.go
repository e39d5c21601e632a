package identities_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/edge/identities"
	"skerry/edge/machinekey"
	"skerry/fleet"
	"skerry/syncproto"
)

const shop = fleet.AllocID("5c6328f7-48c5-4d03-bada-91ef2e904d0d")

// memory is a journal in memory.
type memory struct {
	mu      sync.Mutex
	handles map[string][]byte
}

func (m *memory) PutHandle(_ context.Context, _ fleet.AllocID, key string, handle []byte, _ ...fleet.Transition) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if handle == nil {
		delete(m.handles, key)
	} else {
		m.handles[key] = handle
	}
	return nil
}

func (m *memory) Handles(context.Context, fleet.AllocID) (map[string][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.handles), nil
}

func newMemory() *memory { return &memory{handles: map[string][]byte{}} }

func mustOpen(tb testing.TB, m *memory, key *machinekey.Key, needs func(fleet.AllocID) bool) *identities.Keeper {
	tb.Helper()
	k, err := identities.Open(identities.Config{
		Node: "n1", Journal: m, Sealer: key, Log: slog.New(slog.DiscardHandler),
		HubTime: time.Now, Connected: func(time.Duration) bool { return true }, Announce: func() {},
		Needs: func(_ context.Context, id fleet.AllocID) (bool, error) { return needs(id), nil },
	})
	if err != nil {
		tb.Fatal(err)
	}
	return k
}

func delivered(name, token string) syncproto.DeliveredIdentity {
	return syncproto.DeliveredIdentity{Alloc: shop, Task: "main", Name: name, Token: token, KeyID: "k1", Issued: 1000, Expires: 4600}
}

// mustAccept delivers tokens, and returns what the edge says that it holds.
func mustAccept(tb testing.TB, k *identities.Keeper, list ...syncproto.DeliveredIdentity) string {
	tb.Helper()
	held, err := k.Accept(tb.Context(), list, "")
	if err != nil {
		tb.Fatal(err)
	}
	return heldText(held)
}

func heldText(held []syncproto.DeliveredIdentity) string {
	var out []string
	for _, d := range held {
		out = append(out, fmt.Sprintf("%s/%s%s %s %d-%d", d.Task, d.Name, d.Token, d.KeyID, d.Issued, d.Expires))
	}
	return strings.Join(out, ", ")
}

// TestTokensOutliveARestart: tokens are on the disk, encrypted, and there again with the machine's key alone.
func TestTokensOutliveARestart(t *testing.T) {
	m := newMemory()
	m.handles["variable/x"] = []byte{1}
	key, text := machinekey.New()
	k := mustOpen(t, m, key, nil)
	if got := mustAccept(t, k, delivered("default", "marked-one"), delivered("aws", "marked-two")); got != "main/aws k1 1000-4600, main/default k1 1000-4600" {
		t.Fatalf("it holds %s", got)
	}
	mustAccept(t, k, delivered("default", "marked-three"))
	for name, raw := range m.handles {
		if bytes.Contains(raw, []byte("marked")) {
			t.Errorf("%s is in clear", name)
		}
	}
	again, err := machinekey.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	k = mustOpen(t, m, again, nil)
	if token, _, ok := k.Token(shop, "main", "default"); !ok || token != "marked-three" {
		t.Fatalf("after a restart: %q, %v", token, ok)
	}
	if _, _, ok := k.Token(shop, "side", "default"); ok {
		t.Error("another task has the token")
	}
	other, _ := machinekey.New()
	if got := heldText(mustOpen(t, m, other, nil).Held("")); got != "" {
		t.Errorf("with another key: %s", got)
	}
	m.handles["identity/"+string(shop)+"/default/side"] = m.handles["identity/"+string(shop)+"/default/main"]
	if got := heldText(mustOpen(t, m, again, nil).Held(shop)); strings.Contains(got, "side") {
		t.Errorf("a record of another task: %s", got)
	}
	ofService := delivered("consul-service_web-80", "of a service of the group")
	ofService.Task = ""
	mustAccept(t, k, ofService)
	if token, _, ok := mustOpen(t, m, again, nil).Token(shop, "", ofService.Name); !ok || token != ofService.Token {
		t.Errorf("of a service: %q, %v", token, ok)
	}
	for _, bad := range []syncproto.DeliveredIdentity{{Alloc: shop, Task: "main", Name: "x"}, {Alloc: shop, Name: "x", Token: "t"}, delivered("x", strings.Repeat("x", syncproto.MaxIdentityToken+1)), delivered("", "t"), {Task: "a", Name: "b", Token: "c"}} {
		if _, err := k.Accept(t.Context(), []syncproto.DeliveredIdentity{bad}, ""); fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// TestEndedAreForgotten: a token is kept for a while before its allocation arrives, as long as that runs, and not longer.
func TestEndedAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		key, _ := machinekey.New()
		var mu sync.Mutex
		here := false
		k := mustOpen(t, m, key, func(fleet.AllocID) bool { mu.Lock(); defer mu.Unlock(); return here })
		set := func(is bool) { mu.Lock(); defer mu.Unlock(); here = is }
		go k.Run(t.Context())
		mustAccept(t, k, delivered("default", "one"))
		want := func(after time.Duration, n int) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := len(k.Held("")); got != n || len(m.handles) != n {
				t.Fatalf("%d tokens, %d in the journal, want %d", got, len(m.handles), n)
			}
		}
		want(time.Minute, 1)
		set(true)
		want(48*time.Hour, 1)
		set(false)
		want(31*time.Second, 0)
		mustAccept(t, k, delivered("default", "of one that never comes"))
		want(3*time.Minute, 0)
	})
}
