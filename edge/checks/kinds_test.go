package checks_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry/edge/checks"
	"skerry/fleet"
)

// healthServer answers gRPC's health protocol as a server of google.golang.org/grpc does.
type healthServer struct {
	mu     sync.Mutex
	answer []byte // the message
	code   string // Grpc-Status
	asked  []string
	hangs  bool
	ended  chan struct{} // receives when a request that hangs has ended
}

func (s *healthServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.asked = append(s.asked, fmt.Sprintf("%s %s %s %q", r.Proto, r.URL.Path, r.Header.Get("Content-Type"), body))
	answer, code, hangs := s.answer, s.code, s.hangs
	s.mu.Unlock()
	if hangs {
		<-r.Context().Done()
		s.ended <- struct{}{}
		return
	}
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
	_, _ = w.Write(append([]byte{0, 0, 0, 0, byte(len(answer))}, answer...))
	w.Header().Set("Grpc-Status", code)
	w.Header().Set("Grpc-Message", "as told")
}

// mustProbe runs a check once against a real server and returns its result.
func mustProbe(t *testing.T, c fleet.ServiceCheck, address string) fleet.CheckResult {
	t.Helper()
	return mustProbeService(t, service(c), address)
}

// mustProbeService runs the check of a service once against a real server and returns its result.
func mustProbeService(t *testing.T, s fleet.Service, address string) fleet.CheckResult {
	t.Helper()
	w := newChecksTest(t, s)
	changed := make(chan struct{}, 9)
	var err error
	w.Checks, err = checks.New(checks.Config{
		Node: func() fleet.Node { return w.node }, Mono: w.sinceStart, Now: time.Now, Has: func(string) bool { return true },
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
		Changed: func(fleet.AllocID) { changed <- struct{}{} }, Unhealthy: func(context.Context, fleet.AllocID, string, string) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer w.Wait()
	defer cancel()
	w.Follow(ctx, w.alloc, map[string]time.Duration{"t": 0})
	select {
	case <-changed:
	case <-time.After(time.Minute):
		t.Fatalf("the check does not end: %+v", w.onlyResult(t))
	}
	return w.onlyResult(t)
}

func TestGRPCCheck(t *testing.T) {
	for _, secure := range []bool{false, true} {
		s := &healthServer{code: "0", answer: []byte{8, 1}, ended: make(chan struct{}, 9)}
		server := httptest.NewUnstartedServer(s)
		server.Config.Protocols = new(http.Protocols)
		server.Config.Protocols.SetUnencryptedHTTP2(true)
		server.Config.Protocols.SetHTTP2(true)
		if server.EnableHTTP2 = secure; secure {
			server.TLS = &tls.Config{NextProtos: []string{"h2"}}
			server.StartTLS()
		} else {
			server.Start()
		}
		defer server.Close()
		c := fleet.ServiceCheck{Name: "alive", Type: "grpc", GRPCService: "till.${node.unique.id}", GRPCUseTLS: secure, TLSSkipVerify: secure}
		for _, tc := range []struct {
			code, answer, status, output string
		}{
			{"0", "\x08\x01", checks.Success, "SERVING"},
			{"0", "\x12\x02hi\x08\x01", checks.Success, "SERVING"},
			{"0", "\x08\x02", checks.Failure, "NOT_SERVING"},
			{"0", "", checks.Failure, "UNKNOWN"},
			{"0", "\x08", checks.Failure, "no HealthCheckResponse"},
			{"0", "\x12\x7f", checks.Failure, "no HealthCheckResponse"},
			{"5", "", checks.Failure, `gRPC status "5": as told`},
		} {
			s.mu.Lock()
			s.code, s.answer = tc.code, []byte(tc.answer)
			s.mu.Unlock()
			if r := mustProbe(t, c, server.Listener.Addr().String()); r.Status != tc.status || !strings.Contains(r.Output, tc.output) {
				t.Errorf("secure %t, answer %q: %+v", secure, tc.answer, r)
			}
		}
		s.mu.Lock()
		want := `HTTP/2.0 /grpc.health.v1.Health/Check application/grpc "\x00\x00\x00\x00\b\n\x06till.n"`
		if s.asked[0] != want {
			t.Errorf("asked %s, want %s", s.asked[0], want)
		}
		s.hangs = true
		s.mu.Unlock()
		if r := mustProbe(t, c, server.Listener.Addr().String()); r.Status != checks.Failure || !strings.Contains(r.Output, "no answer from 10.0.0.5:20000 within 2s: ") {
			t.Errorf("a server that never answers: %+v", r)
		}
		select {
		case <-s.ended: // the request ended with the check
		case <-time.After(time.Minute):
			t.Error("the request goes on after its timeout")
		}
	}
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	if r := mustProbe(t, fleet.ServiceCheck{Name: "alive", Type: "grpc"}, plain.Listener.Addr().String()); r.Status != checks.Failure {
		t.Errorf("a server that speaks HTTP/1.1 alone: %+v", r)
	}
}

// scripts runs the commands of script checks.
type scripts struct {
	mu     sync.Mutex
	code   int
	hangs  bool
	output string
	ran    []string
	open   int
}

func (s *scripts) runScript(ctx context.Context, id fleet.AllocID, task string, x fleet.Exec) (int, error) {
	s.mu.Lock()
	s.ran = append(s.ran, fmt.Sprint(id, " ", task, " ", x.Command))
	code, hangs, output := s.code, s.hangs, s.output
	s.open++
	s.mu.Unlock()
	defer func() { s.mu.Lock(); s.open--; s.mu.Unlock() }()
	fmt.Fprint(x.Stdout, output)
	if hangs {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return code, nil
}

func (s *scripts) setExit(code int, output string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.code, s.output = code, output
}

// newScriptTest makes an allocation with one script check.
func newScriptTest(t *testing.T, c fleet.ServiceCheck) (*checksTest, *scripts) {
	t.Helper()
	c.Type, c.Command, c.TaskName = "script", "/bin/look", "t"
	w, s := newChecksTest(t, service(c)), &scripts{}
	w.startAgentForScripts(t, s)
	return w, s
}

// startAgentForScripts makes the checks of a new agent on the same journal.
func (w *checksTest) startAgentForScripts(t *testing.T, s *scripts) {
	t.Helper()
	var err error
	w.Checks, err = checks.New(checks.Config{
		Node: func() fleet.Node { return w.node }, Mono: w.sinceStart, Now: time.Now, Exec: s.runScript, Journal: w.journal, Changed: func(fleet.AllocID) {},
		Unhealthy: func(_ context.Context, id fleet.AllocID, task, why string) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.unhealthy = append(w.unhealthy, string(id)+" "+task+": "+why)
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestScriptCheck(t *testing.T) {
	var w *checksTest
	inVirtualTime(t, func(t *testing.T, ctx context.Context) {
		var s *scripts
		w, s = newScriptTest(t, fleet.ServiceCheck{Name: "alive", Args: []string{"-n", "${node.unique.id}"}})
		s.setExit(0, "fine\n")
		w.followRunning(ctx, 0)
		if r := w.onlyResult(t); r.Status != checks.Success || r.Output != "fine" {
			t.Errorf("exit 0: %+v", r)
		}
		if s.ran[0] != "a t [/bin/look -n n]" {
			t.Errorf("ran %q", s.ran[0])
		}
		s.setExit(1, "slow")
		passVirtualTime(10 * time.Second)
		if r := w.onlyResult(t); r.Status != checks.Warning || r.Output != "slow" || r.StatusCode != 1 {
			t.Errorf("exit 1: %+v", r)
		}
		s.setExit(2, strings.Repeat("é", 10_000))
		passVirtualTime(10 * time.Second)
		if r := w.onlyResult(t); r.Status != checks.Failure || !strings.HasPrefix(r.Output, "exit code 2: é") || len(r.Output) > 4<<10 {
			t.Errorf("exit 2: %d bytes, %+v", len(r.Output), r.Status)
		}
		s.mu.Lock()
		s.hangs, s.output = true, "half"
		s.mu.Unlock()
		passVirtualTime(15 * time.Second)
		if r := w.onlyResult(t); r.Status != checks.Failure || r.Output != "the command did not end within 2s (it may hang, or the check's timeout is too short; run it with skerry alloc exec a): half" {
			t.Errorf("a command that never ends: %+v", r)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.open != 0 {
			t.Errorf("%d commands go on after their timeout", s.open)
		}
	}, func() *checks.Checks { return w.Checks })
}

// Results in a row that a check needs before its status changes.
func TestThresholds(t *testing.T) {
	for _, tc := range []struct {
		c     fleet.ServiceCheck
		exits string // exit codes, one after the other
		want  string // the first letters of the statuses after them
	}{
		{fleet.ServiceCheck{}, "02100", "sfwss"},
		{fleet.ServiceCheck{SuccessBeforePassing: 3}, "000200", "ppsfff"},
		{fleet.ServiceCheck{FailuresBeforeCritical: 3}, "0222022", "sssfsss"},
		{fleet.ServiceCheck{FailuresBeforeCritical: 4, FailuresBeforeWarning: 2}, "022222", "sswwff"},
		{fleet.ServiceCheck{InitialStatus: "critical", SuccessBeforePassing: 2}, "00", "fs"},
	} {
		var w *checksTest
		inVirtualTime(t, func(t *testing.T, ctx context.Context) {
			var s *scripts
			w, s = newScriptTest(t, tc.c)
			got := ""
			for i, exit := range tc.exits {
				s.setExit(int(exit-'0'), "")
				if i == 0 {
					w.followRunning(ctx, 0)
				} else {
					passVirtualTime(10 * time.Second)
				}
				got += w.onlyResult(t).Status[:1]
			}
			if got != tc.want {
				t.Errorf("%+v: after %s it is %s, want %s", tc.c, tc.exits, got, tc.want)
			}
		}, func() *checks.Checks { return w.Checks })
	}
}

func TestInitialStatus(t *testing.T) {
	for initial, want := range map[string]string{"": checks.Pending, "passing": checks.Success, "warning": checks.Warning, "critical": checks.Failure} {
		var w *checksTest
		inVirtualTime(t, func(t *testing.T, ctx context.Context) {
			var s *scripts
			w, s = newScriptTest(t, fleet.ServiceCheck{InitialStatus: initial})
			s.hangs = true
			w.followRunning(ctx, 0)
			if r := w.onlyResult(t); r.Status != want {
				t.Errorf("%q: %+v", initial, r)
			}
			if _, _, ok := w.Passing("a"); ok != (want == checks.Success) {
				t.Errorf("%q counts as passing: %t", initial, ok)
			}
		}, func() *checks.Checks { return w.Checks })
	}
}

// Warnings count as failures for an update and a restart, unless the job ignores them.
func TestWarnings(t *testing.T) {
	for _, ignored := range []bool{false, true} {
		var w *checksTest
		inVirtualTime(t, func(t *testing.T, ctx context.Context) {
			c := fleet.ServiceCheck{Name: "alive", CheckRestart: &fleet.CheckRestart{Limit: 2, IgnoreWarnings: ignored}}
			if ignored {
				c.OnUpdate = fleet.OnUpdateIgnoreWarnings
			}
			var s *scripts
			w, s = newScriptTest(t, c)
			s.setExit(1, "")
			w.followRunning(ctx, 0)
			passVirtualTime(30 * time.Second)
			if _, _, ok := w.Passing("a"); ok != ignored {
				t.Errorf("ignored %t: passing %t", ignored, ok)
			}
			if restarted := w.restartReasons() != ""; restarted == ignored {
				t.Errorf("ignored %t: restarted %t", ignored, restarted)
			}
		}, func() *checks.Checks { return w.Checks })
	}
}
