package swarm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/drivers"
	"skerry/drivers/sim"
	"skerry/edge"
	"skerry/edge/contract"
	"skerry/edge/runner"
	"skerry/edge/swarm"
	"skerry/fleet"
	"skerry/fleet/validate"
	"skerry/syncproto/identity"
)

// rowRecorder records the rows that a runner journals.
type rowRecorder struct {
	mu   sync.Mutex
	rows []fleet.Transition
}

func (b *rowRecorder) Record(_ context.Context, ts ...fleet.Transition) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rows = append(b.rows, ts...)
	return nil
}

func (b *rowRecorder) PutHandle(ctx context.Context, _ fleet.AllocID, _ string, _ []byte, ts ...fleet.Transition) error {
	return b.Record(ctx, ts...)
}

func (b *rowRecorder) Handles(context.Context, fleet.AllocID) (map[string][]byte, error) {
	return nil, nil
}

// rowLines returns the parts of the rows that do not depend on the machine, without rows of checks.
func (b *rowRecorder) rowLines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var lines []string
	for _, t := range b.rows {
		if t.Kind == fleet.TransitionCheck {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s %s %s: %s, then %s, %d restarts", t.Alloc, t.Kind, t.ClientStatus, t.Event.Type, t.TaskState.State, t.TaskState.Restarts))
	}
	return lines
}

const alloc = fleet.AllocID("a0000000-0000-4000-8000-000000000001")

// crashing makes an allocation whose task fails after a second, each time.
func crashing() fleet.Alloc {
	job := &fleet.Job{ID: "shop", Type: fleet.JobTypeService, TaskGroups: []fleet.TaskGroup{{
		Name: "main", Count: 1,
		RestartPolicy: &fleet.RestartPolicy{Attempts: 10, Interval: time.Minute, Mode: fleet.RestartModeDelay},
		Tasks:         []fleet.Task{{Name: "web", Driver: sim.Name, Config: map[string]any{"run_for": "1s", "exit_code": 1}}},
	}}}
	validate.FillDefaults(job)
	return fleet.Alloc{ID: alloc, JobID: job.ID, Job: job, TaskGroup: "main"}
}

// The simulated runner records the same as the real one, for a task that crashes twice and is then stopped.
func TestSimulatedRunnerIsLikeTheRealOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		mono := func() time.Duration { return time.Since(began) }
		factory := &runner.Factory{
			Drivers: map[string]drivers.Driver{sim.Name: sim.New(sim.NewSimMachine())}, Node: func() fleet.Node { return fleet.Node{} },
			Dirs:   runner.Dirs{Allocs: t.TempDir(), State: t.TempDir()},
			BootID: "b", Mono: mono, Now: time.Now, Log: slog.New(slog.DiscardHandler), Jitter: func() float64 { return 0 },
		}
		var really, simulated rowRecorder
		real, err := factory.New(crashing(), contract.LastState{}, &really)
		if err != nil {
			t.Fatal(err)
		}
		var both sync.WaitGroup
		both.Go(func() {
			if err := real.Run(t.Context()); err != nil {
				t.Error(err)
			}
		})
		sim, happen := swarm.Simulated(edge.Machine{Mono: mono, Now: time.Now}, crashing(), contract.LastState{}, &simulated)
		both.Go(func() {
			if err := sim.Run(t.Context()); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(2500 * time.Millisecond)
		if err := happen(t.Context(), 7); err != nil { // two crashes and a check
			t.Error(err)
		}
		if n := len(simulated.rows); n != 2+7 {
			t.Errorf("%d rows, want 2 of the start and 7", n)
		}
		real.Stop("over")
		sim.Stop("over")
		both.Wait()
		if want, got := really.rowLines(), simulated.rowLines(); !slices.Equal(want, got) {
			t.Errorf("journaled\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if err := happen(t.Context(), 1); fleet.CodeOf(err) != fleet.CodeConflict {
			t.Errorf("let something happen after the end: %v, want a conflict", err)
		}
	})
}

// After a restart of the agent, a simulated runner records that its tasks run on.
func TestSimulatedRunnerGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b rowRecorder
		last := contract.LastState{Known: true, ClientStatus: fleet.ClientRunning, TaskStates: map[string]fleet.TaskState{"web": {State: fleet.TaskRunning}}}
		r, _ := swarm.Simulated(edge.Machine{Mono: func() time.Duration { return 0 }, Now: time.Now}, crashing(), last, &b)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v, want that it was detached", err)
		}
		if len(b.rows) != 1 || b.rows[0].Event.Type != fleet.TaskRestored {
			t.Errorf("journaled %v, want that the task was found", b.rowLines())
		}
	})
}

func mustListen(t *testing.T) *net.UDPConn {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// mustHear reads the next packet, which must be want.
func mustHear(t *testing.T, conn net.PacketConn, want string) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	n, _, err := conn.ReadFrom(b)
	if err != nil || !bytes.Equal(b[:n], []byte(want)) {
		t.Fatalf("heard %q, %v, want %q", b[:n], err, want)
	}
}

func TestGateIsSilentInBothDirections(t *testing.T) {
	far, near := mustListen(t), mustListen(t)
	behind, cut, heal := swarm.Gated(near)
	say := func(from net.PacketConn, to *net.UDPConn, text string) {
		t.Helper()
		if n, err := from.WriteTo([]byte(text), to.LocalAddr()); err != nil || n != len(text) {
			t.Fatalf("said %d bytes: %v", n, err)
		}
	}
	say(behind, far, "a")
	mustHear(t, far, "a")
	cut()
	say(behind, far, "lost")
	say(far, near, "lost")
	if err := behind.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := behind.ReadFrom(make([]byte, 100)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("heard something through a gate that is shut: %v", err)
	}
	heal()
	say(behind, far, "b")
	mustHear(t, far, "b")
	say(far, near, "c")
	mustHear(t, behind, "c")
}

// Edges without a hub run all the same, and leave nothing behind.
func TestSwarmOpensAndCloses(t *testing.T) {
	const edges = 5
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte(identity.NewToken([]byte("a CA")).String()), 0o600); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	s, err := swarm.Open(swarm.Config{Dir: dir, Hubs: []string{"127.0.0.1:9"}, TokenFile: token, Edges: edges})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	waiting, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	started, err := s.Await(waiting, "all agents have started", func(t swarm.Totals) bool { return t.Rows == edges })
	if err != nil || started.Connected != 0 {
		t.Errorf("%v, %v", started, err)
	}
	if err := s.GenerateRows(t.Context(), 1); err == nil {
		t.Error("something happened where nothing runs")
	}
	cancel()
	if err := errors.Join(<-ended, s.Close()); err != nil {
		t.Error(err)
	}
	for n := 0; runtime.NumGoroutine() > before; n++ {
		if n == 100_000 {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
		runtime.Gosched()
	}
}
