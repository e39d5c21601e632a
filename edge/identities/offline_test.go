package identities_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	jose "github.com/go-jose/go-jose/v4"

	"skerry/edge/identities"
	"skerry/edge/machinekey"
	"skerry/fleet"
	"skerry/syncproto"
	"skerry/syncproto/nodekey"
)

const thisNode = fleet.NodeID("11111111-1111-4111-8111-111111111111")

// device is an edge with its disk, its link and its clock, as a Keeper sees them.
type device struct {
	tb      testing.TB
	disk    *memory
	machine *machinekey.Key
	keeper  *identities.Keeper
	stop    context.CancelFunc

	mu        sync.Mutex
	connected bool
	silent    time.Duration // since the hub of the session has answered
	gone      bool          // the allocation is not here
	offset    time.Duration // of its clock
	announced int
}

func newDevice(tb testing.TB) *device {
	key, _ := machinekey.New()
	d := &device{tb: tb, disk: newMemory(), machine: key, connected: true}
	d.start()
	return d
}

// start starts an agent.
func (d *device) start() {
	d.tb.Helper()
	keeper, err := identities.Open(identities.Config{
		Node: thisNode, Journal: d.disk, Sealer: d.machine, Log: slog.New(slog.DiscardHandler),
		Needs: func(context.Context, fleet.AllocID) (bool, error) {
			return !locked(d, func() bool { return d.gone }), nil
		},
		HubTime: func() time.Time {
			return time.Now().Add(locked(d, func() time.Duration { return d.offset }))
		},
		Connected: func(within time.Duration) bool {
			return locked(d, func() bool { return d.connected && d.silent < within })
		},
		Announce: func() { locked(d, func() int { d.announced++; return 0 }) },
	})
	if err != nil {
		d.tb.Fatal(err)
	}
	d.keeper = keeper
	var ctx context.Context
	ctx, d.stop = context.WithCancel(d.tb.Context())
	go keeper.Run(ctx)
}

func locked[T any](d *device, f func() T) T {
	d.mu.Lock()
	defer d.mu.Unlock()
	return f()
}

func (d *device) setConnected(is bool) { locked(d, func() bool { d.connected = is; return is }) }

// hubToken is a token of a hub for the task main, which lasts for so long.
func hubToken(name string, ttl time.Duration, offline bool) syncproto.DeliveredIdentity {
	now := time.Now().Unix()
	claims := fmt.Sprintf(`{"iss":"https://hubs.example.com","sub":"global:default:shop:web:main:%s","aud":["vault.io","b"],"iat":%d,"nbf":%d,"exp":%d,"jti":"hub","nomad_task":"main","big":12345678901234567890}`, name, now, now, now+int64(ttl/time.Second))
	return syncproto.DeliveredIdentity{
		Alloc: shop, Task: "main", Name: name, Token: "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln", KeyID: "k1",
		Issued: now, Expires: now + int64(ttl/time.Second), Offline: offline,
	}
}

// deliver delivers tokens, and says that hubs publish the key which the edge has announced.
func (d *device) deliver(list ...syncproto.DeliveredIdentity) {
	d.tb.Helper()
	for _, tokens := range [][]syncproto.DeliveredIdentity{list, nil} {
		published := ""
		if key := d.keeper.PublicKey(); key != "" {
			published = nodekey.ID(thisNode, key)
		}
		if _, err := d.keeper.Accept(d.tb.Context(), tokens, published); err != nil {
			d.tb.Fatal(err)
		}
	}
}

// claims returns what the token of an identity says, and which node has signed it; "": it is the hub's.
func (d *device) claims(name string) (claims map[string]any, signer fleet.NodeID) {
	d.tb.Helper()
	token, _, ok := d.keeper.Token(shop, "main", name)
	if !ok {
		d.tb.Fatalf("no token of %s", name)
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		d.tb.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber()
	if err := decoder.Decode(&claims); err != nil {
		d.tb.Fatal(err)
	}
	for _, held := range d.keeper.Held(shop) {
		if held.Name == name {
			signer, _ = nodekey.NodeOf(held.KeyID)
		}
	}
	return claims, signer
}

// mustCount fails unless the token of an identity counts now, by its end.
func (d *device) mustCount(name string) {
	d.tb.Helper()
	claims, _ := d.claims(name)
	if end, err := claims["exp"].(json.Number).Int64(); err != nil || time.Now().Unix() >= end {
		d.tb.Fatalf("%s ended at %d, it is %d", name, end, time.Now().Unix())
	}
}

// TestEdgeRenewsOffline: a token of an offline identity never ends while no hub is in reach, for as long as that takes. It
// keeps the hub's claims, and a JWT library verifies it with the key that the edge has announced. Other tokens end.
func TestEdgeRenewsOffline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDevice(t)
		d.deliver(hubToken("vault", time.Hour, true), hubToken("aws", time.Hour, false))
		public := d.keeper.PublicKey()
		d.setConnected(false)
		begun := time.Now().Unix()
		for range 60 * 4 {
			time.Sleep(6 * time.Hour)
			synctest.Wait()
			d.mustCount("vault")
		}
		claims, signer := d.claims("vault")
		if signer != thisNode || d.keeper.PublicKey() != public {
			t.Fatalf("signed by %s, with %s", signer, d.keeper.PublicKey())
		}
		issued, _ := claims["iat"].(json.Number).Int64()
		if now := time.Now().Unix(); issued > now || issued < now-2700-1 || fmt.Sprint(claims["nbf"]) != fmt.Sprint(issued) || fmt.Sprint(claims["exp"]) != fmt.Sprint(issued+3600) || issued < begun {
			t.Errorf("its times: %v", claims)
		}
		for name, want := range map[string]string{
			"iss": "https://hubs.example.com/v1/node/" + string(thisNode), "sub": "global:default:shop:web:main:vault", "aud": "[vault.io b]",
			"nomad_task": "main", "big": "12345678901234567890", "skerry_node_id": string(thisNode), "skerry_offline": "true",
		} {
			if got := fmt.Sprint(claims[name]); got != want {
				t.Errorf("%s is %s, want %s", name, got, want)
			}
		}
		if claims["jti"] == "hub" {
			t.Error("it has the ID of the hub's token")
		}
		token, _, _ := d.keeper.Token(shop, "main", "vault")
		signed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.ES256})
		if err != nil {
			t.Fatal(err)
		}
		key, err := nodekey.ParsePublic(public)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := signed.Verify(key); err != nil || signed.Signatures[0].Header.KeyID != nodekey.ID(thisNode, public) {
			t.Errorf("its signature: %v, of %s", err, signed.Signatures[0].Header.KeyID)
		}
		if _, signer := d.claims("aws"); signer != "" {
			t.Error("the edge has signed an identity whose job does not allow it")
		}
		d.setConnected(true)
		d.deliver(hubToken("vault", time.Hour, true))
		if claims, signer := d.claims("vault"); signer != "" || claims["jti"] != "hub" {
			t.Errorf("with a link: %v of %q", claims, signer)
		}
	})
}

// TestOnlyWithoutAHub: the edge signs nothing while a hub is in reach, nor before a quarter of the time is left, nor for an
// allocation that has ended. With the shortest ttl it is in time.
func TestOnlyWithoutAHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDevice(t)
		d.deliver(hubToken("vault", time.Hour, true))
		want := func(after time.Duration, signed bool) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if _, signer := d.claims("vault"); (signer != "") != signed {
				t.Fatalf("signed by %q", signer)
			}
		}
		want(2*time.Hour, false) // the hub renews nothing, but is in reach
		locked(d, func() bool { d.silent = time.Hour/8 - 1; return true })
		want(time.Minute, false)
		locked(d, func() bool { d.silent++; return true })
		want(2*time.Second, true) // it is there no longer, and the session does not know yet
		locked(d, func() bool { d.silent = 0; return true })
		d.deliver(hubToken("vault", time.Hour, true))
		want(2*time.Hour, false)
		d.setConnected(false)
		want(2*time.Second, true)
		d.setConnected(true)
		d.deliver(hubToken("vault", time.Hour, true))
		d.setConnected(false)
		want(44*time.Minute, false)
		want(2*time.Minute, true)
		d.deliver(hubToken("vault", time.Minute, true))
		locked(d, func() bool { d.gone = true; return true })
		want(59*time.Second, false)
		locked(d, func() bool { d.gone = false; return true })
		d.deliver(hubToken("vault", 5*time.Second, true))
		for range 200 {
			time.Sleep(500 * time.Millisecond)
			synctest.Wait()
			d.mustCount("vault")
		}
	})
}

// TestColdBootOffline: after a boot without a link, and a year without power, the first token that a task gets counts. The
// keys are on the disk, encrypted.
func TestColdBootOffline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDevice(t)
		d.deliver(hubToken("vault", time.Hour, true))
		public := d.keeper.PublicKey()
		d.setConnected(false)
		d.stop()
		synctest.Wait()
		time.Sleep(365 * 24 * time.Hour)
		d.start()
		if _, err := d.keeper.RenewOffline(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.mustCount("vault")
		if d.keeper.PublicKey() != public {
			t.Error("it has announced another key without a link")
		}
		token, _, _ := d.keeper.Token(shop, "main", "vault")
		d.stop()
		synctest.Wait()
		d.start()
		if again, _, _ := d.keeper.Token(shop, "main", "vault"); again != token {
			t.Error("its own token is not there after another start")
		}
		d.machine, _ = machinekey.New()
		d.stop()
		synctest.Wait()
		d.start()
		if d.keeper.PublicKey() != "" {
			t.Error("the key is readable without the key of the machine")
		}
		d.stop()
	})
}

// TestClockOfTheEdge: a clock that was wrong and is put right has the edge sign again, so that its token counts: one that was
// too late by a year, or too early.
func TestClockOfTheEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, wrong := range []time.Duration{365 * 24 * time.Hour, -10 * time.Hour} {
			d := newDevice(t)
			d.deliver(hubToken("vault", time.Hour, true))
			d.setConnected(false)
			locked(d, func() bool { d.offset = wrong; return true })
			time.Sleep(2 * time.Hour)
			locked(d, func() bool { d.offset = 0; return true })
			time.Sleep(time.Minute)
			synctest.Wait()
			claims, signer := d.claims("vault")
			issued, _ := claims["iat"].(json.Number).Int64()
			if now := time.Now().Unix(); signer == "" || issued > now || issued < now-3600 {
				t.Errorf("wrong by %s: issued at %d, it is %d", wrong, issued, now)
			}
			d.stop()
		}
	})
}

// TestKeysOfTheEdge: an edge makes a key for its first offline identity, and another one in the first session of a process
// and after RotateKey. It signs with the last one that hubs publish, until they publish the next.
func TestKeysOfTheEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDevice(t)
		d.deliver(hubToken("aws", time.Hour, false))
		if d.keeper.PublicKey() != "" || d.announced != 0 {
			t.Fatal("it has a key without an offline identity")
		}
		accept := func(published string, list ...syncproto.DeliveredIdentity) (public string) {
			t.Helper()
			if published != "" {
				published = nodekey.ID(thisNode, published)
			}
			if _, err := d.keeper.Accept(t.Context(), list, published); err != nil {
				t.Fatal(err)
			}
			return d.keeper.PublicKey()
		}
		signs := func(public string) {
			t.Helper()
			d.setConnected(false)
			time.Sleep(time.Hour)
			synctest.Wait()
			d.setConnected(true)
			want := ""
			if public != "" {
				want = nodekey.ID(thisNode, public)
			}
			for _, held := range d.keeper.Held(shop) {
				if _, own := nodekey.NodeOf(held.KeyID); held.Name == "vault" && (own || want != "") && held.KeyID != want {
					t.Fatalf("it signs with %s, want %s", held.KeyID, want)
				}
			}
		}
		first := accept("", hubToken("vault", time.Hour, true))
		if first == "" || d.announced != 1 {
			t.Fatal("it announces no key")
		}
		signs("") // hubs do not publish it yet
		if accept(first) != first || d.announced != 1 {
			t.Fatal("it announces another key at once")
		}
		signs(first)
		d.stop()
		synctest.Wait()
		d.start()
		second := accept(first)
		if second == first || d.announced != 2 {
			t.Fatal("another process announces the same key")
		}
		signs(first)
		if accept("someone-elses") != second {
			t.Error("it announces another key again")
		}
		signs(first)
		accept(second)
		signs(second)
		d.keeper.RotateKey()
		third := accept(second)
		signs(second)
		accept(third)
		signs(third)
		d.stop()
	})
}

// TestBadTokensAreNotRenewed: a token of a hub that cannot be read stays as it is, and the others are renewed.
func TestBadTokensAreNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, text := range []string{"a.b", "a.%.c", "a." + base64.RawURLEncoding.EncodeToString([]byte("[]")) + ".c"} {
			d := newDevice(t)
			bad := hubToken("a-bad", time.Hour, true)
			bad.Token = text
			endless := hubToken("endless", time.Hour, true)
			endless.Expires = 0
			d.deliver(bad, endless, hubToken("vault", time.Hour, true))
			d.setConnected(false)
			time.Sleep(2 * time.Hour)
			synctest.Wait()
			d.mustCount("vault")
			if token, _, _ := d.keeper.Token(shop, "main", "a-bad"); token != text {
				t.Errorf("%q became %q", text, token)
			}
			d.stop()
		}
	})
}
