package neighbours

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/fleet"
	"skerry/syncproto"
)

// fakeJournal is a Journal in memory.
type fakeJournal struct {
	mu      sync.Mutex
	handles map[string][]byte
	writes  int
	fail    error
	away    time.Duration
}

func (j *fakeJournal) PutHandle(_ context.Context, _ fleet.AllocID, key string, handle []byte, _ ...fleet.Transition) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.writes++; j.fail != nil {
		return j.fail
	}
	if j.handles[key] = handle; handle == nil {
		delete(j.handles, key)
	}
	return nil
}

func (j *fakeJournal) Handles(context.Context, fleet.AllocID) (map[string][]byte, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.handles), nil
}

func (j *fakeJournal) Away() time.Duration { return j.away }

// keeperTest is a Keeper that runs in virtual time.
type keeperTest struct {
	*testing.T
	journal *fakeJournal
	keeper  *Keeper
	stop    func()

	mu    sync.Mutex
	dead  map[string]bool // addresses that refuse
	tried map[string]int
	busy  int // tries at once, and the most of them
	most  int
}

func newKeeperTest(t *testing.T) *keeperTest {
	k := &keeperTest{T: t, journal: &fakeJournal{handles: map[string][]byte{}}, dead: map[string]bool{}, tried: map[string]int{}}
	k.start()
	t.Cleanup(func() { k.stop() })
	return k
}

// start starts a Keeper, as a restarted agent does.
func (k *keeperTest) start() {
	k.Helper()
	keeper, err := Open(Config{Journal: k.journal, Dial: k.dial, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		k.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- keeper.Run(ctx) }()
	k.keeper, k.stop = keeper, sync.OnceFunc(func() { cancel(); <-ended })
	synctest.Wait()
}

// dial takes a second, and fails for what is dead.
func (k *keeperTest) dial(ctx context.Context, _, address string) (net.Conn, error) {
	k.mu.Lock()
	k.busy++
	k.most = max(k.most, k.busy)
	k.tried[address]++
	dead := k.dead[address]
	k.mu.Unlock()
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.busy--
	if dead {
		return nil, errors.New("connection refused")
	}
	ours, theirs := net.Pipe()
	return ours, theirs.Close()
}

// triesOf counts the tries, by address.
func (k *keeperTest) triesOf() map[string]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.tried)
}

// writes counts the writes to the journal, failed ones too.
func (k *keeperTest) writes() int {
	k.journal.mu.Lock()
	defer k.journal.mu.Unlock()
	return k.journal.writes
}

// records returns what the journal has.
func (k *keeperTest) records() map[string][]byte {
	held, _ := k.journal.Handles(k.Context(), noAlloc)
	return held
}

func (k *keeperTest) setDead(address string, dead bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dead[address] = dead
}

func (k *keeperTest) accept(req syncproto.Request) {
	k.Helper()
	if _, err := k.keeper.Accept(k.Context(), req); err != nil {
		k.Fatal(err)
	}
	synctest.Wait()
}

// deliver is a request that makes the copy exact.
func deliver(list ...syncproto.DeliveredService) syncproto.Request {
	return syncproto.Request{Kind: syncproto.RequestServices, Services: list, Exact: true}
}

// service is the service of a neighbour at NODE:80, with a check over TCP.
func service(node, name string) syncproto.DeliveredService {
	return syncproto.DeliveredService{
		ID: node + "-" + name, Sum: []byte(name), Name: name, Namespace: "default", Node: fleet.NodeID(node), NodeName: "the " + node,
		Address: node, Port: 80, TCP: true, Tags: []string{"main"}, Alloc: "a1", Job: "shop", Datacenter: "dc1",
	}
}

// want compares what is known of the services: "ID", with "!" if it is critical and "?" if it was not tried.
func (k *keeperTest) want(when string, services ...string) {
	k.Helper()
	var got []string
	for _, n := range k.keeper.Services("", "") {
		text := n.ID
		if n.Critical != "" {
			text += "!"
		}
		if n.Untried {
			text += "?"
		}
		got = append(got, text)
	}
	if slices.Sort(got); !slices.Equal(got, services) {
		k.Errorf("%s: the services are %q, want %q", when, got, services)
	}
}

// pass lets time pass.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestTriesWithoutALink: with a link nothing is tried and a hub's word counts. Without one, services that do not answer are
// critical until they answer again, and after a reboot.
func TestTriesWithoutALink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeperTest(t)
		k.want("at first")
		k.setDead("b:80", true)
		k.accept(deliver(service("a", "till"), service("b", "till")))
		pass(time.Hour)
		k.want("a hub says so", "a-till", "b-till")
		if len(k.triesOf()) > 0 {
			t.Errorf("%v were tried, although hubs are in reach", k.triesOf())
		}
		if age := k.keeper.Age(); age != 0 {
			t.Errorf("the copy is %v old", age)
		}
		k.keeper.NoteSessionEnd()
		pass(10 * time.Second)
		if len(k.triesOf()) > 0 {
			t.Errorf("%v were tried at once: the link often returns", k.triesOf())
		}
		k.want("the link has just gone", "a-till?", "b-till?")
		pass(10 * time.Second)
		k.want("they were tried", "a-till", "b-till!")
		since := k.keeper.Services("default", "till")
		k.setDead("a:80", true)
		pass(2 * tryEvery)
		k.want("another one has died", "a-till!", "b-till!")
		for _, n := range k.keeper.Services("default", "till") {
			for _, old := range since {
				if n.ID == old.ID && n.ID == "b-till" && (n.Since != old.Since || n.Critical != "connection refused" || n.NodeName != "the b") {
					t.Errorf("it was %+v and is %+v", old, n)
				}
			}
		}
		k.setDead("b:80", false)
		pass(2 * tryEvery)
		k.want("one is back", "a-till!", "b-till")
		if age := k.keeper.Age(); age < time.Minute || age > 3*time.Minute {
			t.Errorf("the copy is %v old", age)
		}
		k.stop()
		k.journal.away = time.Hour // the machine reboots
		k.start()
		pass(2 * time.Second)
		k.want("after a reboot", "a-till!", "b-till")
		if age := k.keeper.Age(); age < time.Hour || age > time.Hour+time.Minute {
			t.Errorf("after a reboot the copy is %v old", age)
		}
		k.accept(deliver())
		k.want("a hub says so again", "a-till", "b-till")
		k.keeper.NoteSessionEnd()
		synctest.Wait()
		k.want("what was found out before does not count", "a-till?", "b-till?")
	})
}

// TestServicesWhoseEdgeIsAway: with a link, only services of nodes that hubs cannot reach are tried.
func TestServicesWhoseEdgeIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeperTest(t)
		for _, a := range []string{"a:80", "b:80"} {
			k.setDead(a, true)
		}
		req := deliver(service("a", "till"), service("b", "till"), service("b", "web"))
		req.UnreachableNodes = []fleet.NodeID{"b"}
		k.accept(req)
		pass(5 * time.Second)
		k.want("hubs cannot reach b", "a-till", "b-till!", "b-web!")
		if want := map[string]int{"b:80": 1}; !maps.Equal(k.triesOf(), want) {
			t.Errorf("tried %v, want %v: one try for an address", k.triesOf(), want)
		}
		if found := k.keeper.Services("default", "web"); len(found) != 1 || found[0].Status != fleet.ServiceUnreachable {
			t.Errorf("%+v", found)
		}
		k.accept(deliver())
		k.want("b is back", "a-till", "b-till", "b-web")
	})
}

// TestWhatCannotBeTried: a service that may be one of UDP is critical only once it has answered before, and one without a
// port never is.
func TestWhatCannotBeTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeperTest(t)
		udp, maybe, none := service("a", "dns"), service("b", "web"), service("c", "batch")
		udp.TCP, maybe.TCP, none.TCP, none.Port = false, false, false, 0
		k.setDead("a:80", true)
		k.accept(deliver(udp, maybe, none))
		k.keeper.NoteSessionEnd()
		pass(2 * tryEvery)
		k.want("a does not answer", "a-dns?", "b-web", "c-batch?")
		k.setDead("b:80", true)
		pass(2 * tryEvery)
		k.want("b answers no more", "a-dns?", "b-web!", "c-batch?")
	})
}

// TestTriesAreBound: few connections are open at once, and rounds have a pause between them.
func TestTriesAreBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeperTest(t)
		var list []syncproto.DeliveredService
		for i := range 4 * maxTries {
			list = append(list, service(fmt.Sprint("n", i), "till"))
		}
		k.accept(deliver(list...))
		k.keeper.NoteSessionEnd()
		pass(tryEvery + 10*(4*time.Second+tryEvery) - time.Second)
		k.mu.Lock()
		most := k.most
		k.mu.Unlock()
		if most != maxTries || k.triesOf()["n0:80"] != 10 {
			t.Errorf("%d tries at once, and %d rounds", most, k.triesOf()["n0:80"])
		}
	})
}

// TestCopyIsJournaled: the first change is durable when it is answered. Later ones are journaled at the end of the session,
// or after a while, so that a neighbour that crashes again and again costs few writes.
func TestCopyIsJournaled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeperTest(t)
		k.accept(syncproto.Request{Kind: syncproto.RequestServices, Services: []syncproto.DeliveredService{service("a", "till")}})
		k.accept(deliver(service("a", "web"), service("b", "till")))
		if k.writes() != 2 {
			t.Errorf("%d writes for two nodes", k.writes())
		}
		for range 24 * 60 {
			pass(time.Minute)
			k.accept(deliver(syncproto.DeliveredService{ID: "a-till", Removed: true}))
			k.accept(deliver(service("a", "till")))
		}
		if n := k.writes() - 2; n < 140 || n > 146 {
			t.Errorf("%d writes in a day of crashes", n)
		}
		pass(time.Hour)
		quiet := k.writes()
		pass(24 * time.Hour)
		if k.writes() != quiet {
			t.Errorf("%d writes without a change", k.writes()-quiet)
		}
		k.accept(deliver(syncproto.DeliveredService{ID: "b-till", Removed: true}))
		k.accept(deliver(service("c", "till")))
		k.keeper.NoteSessionEnd()
		synctest.Wait()
		k.stop()
		k.start()
		k.want("after the session", "a-till?", "a-web?", "c-till?")
		if _, there := k.records()["neighbour/b"]; there {
			t.Error("the journal has services of b")
		}
		k.accept(deliver(service("d", "till")))
		k.accept(deliver(service("d", "web")))
		k.stop()
		k.start()
		k.want("after the end", "a-till?", "a-web?", "c-till?", "d-till?", "d-web?")
		held, err := k.keeper.Accept(t.Context(), syncproto.Request{Kind: syncproto.RequestServices})
		if err != nil || len(held) != 5 || held[0].ID != "a-till" || string(held[0].Sum) != "till" || held[0].Name != "" {
			t.Errorf("the edge says that it holds %+v, %v", held, err)
		}
	})
}

// TestFailedWriteIsTriedAgain: a hub is told that its delivery is not durable, and the edge tries again itself.
func TestFailedWriteIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeperTest(t)
		k.journal.mu.Lock()
		k.journal.fail = errors.New("disk full")
		k.journal.mu.Unlock()
		if _, err := k.keeper.Accept(t.Context(), deliver(service("a", "till"))); err == nil || !strings.Contains(err.Error(), "disk full") {
			t.Errorf("it was kept: %v", err)
		}
		k.keeper.NoteSessionEnd()
		pass(5 * time.Minute)
		if n := k.writes(); n < 4 || n > 7 {
			t.Errorf("%d tries to write in five minutes", n)
		}
		k.journal.mu.Lock()
		k.journal.fail = nil
		k.journal.mu.Unlock()
		pass(2 * saveRetry)
		if len(k.records()) != 1 {
			t.Error("it was not journaled")
		}
	})
}

// TestForgottenNeighbours: an edge whose hub does not say that it has neighbours forgets them, but not without a link.
func TestForgottenNeighbours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeperTest(t)
		k.accept(deliver(service("a", "till")))
		k.keeper.NoteAnswer()
		pass(time.Hour)
		k.keeper.NoteAnswer()
		k.want("a hub has said so", "a-till")
		k.keeper.NoteSessionEnd()
		pass(time.Hour)
		k.want("no hub is in reach", "a-till")
		k.keeper.NoteAnswer()
		pass(forgetAfter - time.Second)
		k.keeper.NoteAnswer()
		k.keeper.NoteSessionEnd()
		pass(time.Minute)
		k.keeper.NoteAnswer()
		pass(time.Minute)
		k.keeper.NoteAnswer()
		k.want("no session was long enough", "a-till")
		pass(forgetAfter)
		k.keeper.NoteAnswer()
		synctest.Wait()
		k.want("a hub has said nothing for long")
		if len(k.records()) > 0 {
			t.Error("the journal has them still")
		}
	})
}

// TestDeliveryOfAnEndedSession: it does not end the tries.
func TestDeliveryOfAnEndedSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeperTest(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := k.keeper.Accept(ctx, deliver(service("a", "till"))); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if k.triesOf()["a:80"] == 0 || k.keeper.Age() == 0 {
			t.Error("a session that is over has confirmed the copy")
		}
	})
}

func TestDeliveriesThatAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeperTest(t)
		bad := service("a", "till")
		bad.Port = -1
		if _, err := k.keeper.Accept(t.Context(), deliver(service("b", "till"), bad)); fleet.CodeOf(err) != fleet.CodeInvalid {
			t.Errorf("a bad port: %v", err)
		}
		k.want("nothing of it counts")
		var list []syncproto.DeliveredService
		for i := range syncproto.MaxServices {
			list = append(list, service(fmt.Sprint("n", i), "till"))
		}
		k.accept(deliver(list...))
		if _, err := k.keeper.Accept(t.Context(), deliver(service("x", "till"))); fleet.CodeOf(err) != fleet.CodeConflict {
			t.Errorf("one more than there may be: %v", err)
		}
		k.accept(deliver(syncproto.DeliveredService{ID: "n0-till", Removed: true}, service("x", "till"), service("n1", "till")))
		if n := len(k.keeper.Services("", "")); n != syncproto.MaxServices {
			t.Errorf("%d services", n)
		}
	})
}

// FuzzRecord opens journals with arbitrary records.
func FuzzRecord(f *testing.F) {
	j := &fakeJournal{handles: map[string][]byte{}}
	cfg := Config{Journal: j, Log: slog.New(slog.DiscardHandler)}
	k, err := Open(cfg)
	if err != nil {
		f.Fatal(err)
	}
	if _, err := k.Accept(context.Background(), deliver(service("a", "till"), service("a", "web"))); err != nil {
		f.Fatal(err)
	}
	f.Add(j.handles["neighbour/a"])
	f.Fuzz(func(t *testing.T, raw []byte) {
		cfg.Journal = &fakeJournal{handles: map[string][]byte{"neighbour/a": raw}}
		k, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range k.Services("", "") {
			if n.NodeID != "a" {
				t.Fatalf("a service of node %q", n.NodeID)
			}
		}
		if _, err := k.Accept(t.Context(), deliver()); err != nil {
			t.Fatal(err)
		}
	})
}
