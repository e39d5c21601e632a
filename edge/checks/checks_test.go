package checks_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"skerry/edge/checks"
	"skerry/fleet"
	"skerry/fleet/validate"
)

// fakeServers answers the checks at given addresses.
type fakeServers struct {
	mu       sync.Mutex
	answers  map[string]int // status, by HOST:PORT
	body     string
	hang     string   // "dial": a connection is never made, "answer": a request is never answered
	requests []string // METHOD URL header body
	secure   *tls.Config
}

func (s *fakeServers) setServerStatus(address string, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[address] = status
}

func (s *fakeServers) removeServer(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.answers, address)
}

func (s *fakeServers) receivedRequests() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.requests, "\n")
}

func (s *fakeServers) dialServer(ctx context.Context, _, address string) (net.Conn, error) {
	s.mu.Lock()
	status, ok := s.answers[address]
	hang := s.hang
	s.mu.Unlock()
	if hang == "dial" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if !ok && hang == "" {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	ours, theirs := net.Pipe()
	if hang == "answer" {
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		return ours, nil
	}
	go func() {
		// Without a TLS alert: the client may send one too, and an unread pipe would block both.
		defer theirs.Close()
		if s.secure != nil {
			s.serveRequest(tls.Server(theirs, s.secure), address, status)
		} else {
			s.serveRequest(theirs, address, status)
		}
	}()
	return ours, nil
}

func (s *fakeServers) serveRequest(conn net.Conn, address string, status int) {
	req, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return // a tcp check sends nothing
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, fmt.Sprintf("%s %s%s %s %s", req.Method, address, req.URL, req.Header.Get("X-Shop"), body))
	answer := s.body
	s.mu.Unlock()
	fmt.Fprintf(conn, "HTTP/1.1 %d Said\r\nContent-Length: %d\r\n\r\n%s", status, len(answer), answer)
}

// checksTest is an allocation whose services are checked.
type checksTest struct {
	*checks.Checks
	site      *fakeServers
	journal   *fakeJournal
	alloc     fleet.Alloc
	start     time.Time
	node      fleet.Node
	mu        sync.Mutex
	changed   int
	unhealthy []string
	refuse    error
	lost      bool // the machine has lost its address
}

func (w *checksTest) sinceStart() time.Duration { return time.Since(w.start) }

func newChecksTest(t *testing.T, services ...fleet.Service) *checksTest {
	t.Helper()
	w := &checksTest{site: &fakeServers{answers: map[string]int{}, body: "not today"}, journal: &fakeJournal{handles: map[string][]byte{}}, start: time.Now()}
	w.node = fleet.Node{ID: "n", Attributes: map[string]string{fleet.AttributeIPAddress: "10.0.0.5"}, DescriptionHash: "h"}
	job := &fleet.Job{ID: "shop", TaskGroups: []fleet.TaskGroup{{Name: "web", Tasks: []fleet.Task{{Name: "t"}}, Services: services}}}
	validate.FillDefaults(job)
	w.alloc = fleet.Alloc{ID: "a", Name: "shop.web[0]", JobID: "shop", Job: job, TaskGroup: "web", AllocModifyIndex: 1,
		Allotment: &fleet.AssignedResources{Ports: []fleet.AssignedPort{{Label: "http", Value: 20_000, HostIP: "10.0.0.5"}, {Label: "admin", Value: 20_001, HostIP: "10.0.0.5"}}}}
	var err error
	w.Checks, err = checks.New(checks.Config{
		Node: func() fleet.Node { return w.node }, Mono: w.sinceStart, Now: time.Now, Dial: w.site.dialServer, Journal: w.journal,
		Has:     func(host string) bool { w.mu.Lock(); defer w.mu.Unlock(); return !w.lost && host == "10.0.0.5" },
		Changed: func(fleet.AllocID) { w.mu.Lock(); w.changed++; w.mu.Unlock() },
		Unhealthy: func(_ context.Context, id fleet.AllocID, task, why string) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.unhealthy = append(w.unhealthy, string(id)+" "+task+": "+why)
			return w.refuse
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// followRunning follows the allocation with a task that started d after the beginning.
func (w *checksTest) followRunning(ctx context.Context, d time.Duration) {
	w.Follow(ctx, w.alloc, map[string]time.Duration{"t": d})
	synctest.Wait()
}

func passVirtualTime(d time.Duration) {
	time.Sleep(d) // virtual time
	synctest.Wait()
}

// onlyResult returns the only result.
func (w *checksTest) onlyResult(t *testing.T) fleet.CheckResult {
	t.Helper()
	all := w.Results("a")
	if len(all) != 1 {
		t.Fatalf("results %+v", all)
	}
	for id, r := range all {
		if id != r.ID {
			t.Errorf("result %s is of %s", id, r.ID)
		}
		return r
	}
	return fleet.CheckResult{}
}

func (w *checksTest) restartReasons() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.unhealthy, "; ")
}

// service makes a service with one check.
func service(c fleet.ServiceCheck) fleet.Service {
	c.Interval, c.Timeout = 10*time.Second, 2*time.Second
	return fleet.Service{Name: "web", Provider: fleet.ProviderNomad, PortLabel: "http", Checks: []fleet.ServiceCheck{c}}
}

// inVirtualTime runs a test in virtual time and waits for all checks at its end.
func inVirtualTime(t *testing.T, do func(t *testing.T, ctx context.Context), wait func() *checks.Checks) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		do(t, ctx)
		cancel()
		wait().Wait()
	})
}

func TestHTTPCheck(t *testing.T) {
	var w *checksTest
	inVirtualTime(t, func(t *testing.T, ctx context.Context) {
		w = newChecksTest(t, service(fleet.ServiceCheck{
			Name: "alive", Type: "http", Path: "/health?a=1", Method: "post", Body: "hello", Header: map[string][]string{"X-Shop": {"${node.unique.id}"}},
		}))
		if r := w.Results("a"); len(r) != 0 {
			t.Errorf("results of what is not followed: %+v", r)
		}
		w.followRunning(ctx, 0)
		if r := w.onlyResult(t); r.Status != checks.Failure || !strings.Contains(r.Output, "connection refused") || r.Timestamp == 0 {
			t.Errorf("nobody listens: %+v", r)
		}
		w.site.setServerStatus("10.0.0.5:20000", 204)
		passVirtualTime(10 * time.Second)
		r := w.onlyResult(t)
		if r.Status != checks.Success || r.StatusCode != 204 || r.Check != "alive" || r.Service != "web" || r.Mode != checks.Healthiness || r.Group != "shop.web[0]" {
			t.Errorf("it answers: %+v", r)
		}
		if got, want := w.site.receivedRequests(), "POST 10.0.0.5:20000/health?a=1 n hello"; got != want {
			t.Errorf("asked %q, want %q", got, want)
		}
		w.site.setServerStatus("10.0.0.5:20000", 503)
		passVirtualTime(10 * time.Second)
		if r := w.onlyResult(t); r.Status != checks.Failure || r.StatusCode != 503 || !strings.Contains(r.Output, "not today") {
			t.Errorf("it does not serve: %+v", r)
		}
	}, func() *checks.Checks { return w.Checks })
}

// TestHTTPSCheck connects with TLS, with the server name of the check, and skips the verification only
// if the check says so.
func TestHTTPSCheck(t *testing.T) {
	server := httptest.NewTLSServer(nil) // for its certificate, which is not trusted
	server.Close()
	for _, tc := range []struct {
		check  fleet.ServiceCheck
		status string
		says   string
		name   string // requested server name
	}{
		{fleet.ServiceCheck{Protocol: "https"}, checks.Failure, "certificate", ""},
		{fleet.ServiceCheck{Protocol: "https", TLSSkipVerify: true}, checks.Success, "200", ""},
		{fleet.ServiceCheck{Protocol: "https", TLSSkipVerify: true, TLSServerName: "${node.unique.id}.example"}, checks.Success, "200", "n.example"},
		{fleet.ServiceCheck{Protocol: "http"}, checks.Failure, "", ""},
	} {
		var w *checksTest
		inVirtualTime(t, func(t *testing.T, ctx context.Context) {
			tc.check.Name, tc.check.Type, tc.check.Path = "alive", "http", "/"
			w = newChecksTest(t, service(tc.check))
			name := ""
			w.site.secure = &tls.Config{Certificates: server.TLS.Certificates, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
				name = hello.ServerName
				return nil, nil
			}}
			w.site.setServerStatus("10.0.0.5:20000", 200)
			w.followRunning(ctx, 0)
			if r := w.onlyResult(t); r.Status != tc.status || !strings.Contains(r.Output, tc.says) || name != tc.name {
				t.Errorf("%+v: %+v, and asked for %q; want %s with %q, for %q", tc.check, r, name, tc.status, tc.says, tc.name)
			}
		}, func() *checks.Checks { return w.Checks })
	}
}

// TestConsulsHTTPCheck: an http check of a service of Consul has the results that Consul would give it.
func TestConsulsHTTPCheck(t *testing.T) {
	for status, want := range map[int]string{200: checks.Success, 299: checks.Success, 304: checks.Failure, 429: checks.Warning, 404: checks.Failure} {
		var w *checksTest
		inVirtualTime(t, func(t *testing.T, ctx context.Context) {
			s := service(fleet.ServiceCheck{Name: "alive", Type: "http", Path: "/"})
			s.Provider = fleet.ProviderConsul
			w = newChecksTest(t, s)
			w.site.setServerStatus("10.0.0.5:20000", status)
			w.followRunning(ctx, 0)
			if r := w.onlyResult(t); r.Status != want {
				t.Errorf("%d: %+v, want %s", status, r, want)
			}
		}, func() *checks.Checks { return w.Checks })
	}
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ok" {
			http.Redirect(w, r, "/ok", http.StatusFound)
		}
	}))
	defer target.Close()
	for provider, code := range map[string]int{fleet.ProviderConsul: 200, fleet.ProviderNomad: 302} {
		s := service(fleet.ServiceCheck{Name: "alive", Type: "http", Path: "/"})
		s.Provider = provider
		if r := mustProbeService(t, s, target.Listener.Addr().String()); r.Status != checks.Success || r.StatusCode != code {
			t.Errorf("a redirect, for %s: %+v", provider, r)
		}
	}
}

func TestWhatPasses(t *testing.T) {
	for _, tc := range []struct {
		name    string
		check   fleet.ServiceCheck
		address string
		answer  int
		want    string
	}{
		{"tcp", fleet.ServiceCheck{Type: "tcp"}, "10.0.0.5:20000", 200, checks.Success},
		{"tcp of another port", fleet.ServiceCheck{Type: "tcp", PortLabel: "admin"}, "10.0.0.5:20001", 200, checks.Success},
		{"tcp of a number", fleet.ServiceCheck{Type: "tcp", PortLabel: "8080"}, "10.0.0.5:8080", 200, checks.Success},
		{"tcp, and nobody is there", fleet.ServiceCheck{Type: "tcp"}, "10.0.0.5:1", 200, checks.Failure},
		{"a port that is not there", fleet.ServiceCheck{Type: "tcp", PortLabel: "nope"}, "10.0.0.5:20000", 200, checks.Failure},
		{"a redirect", fleet.ServiceCheck{Type: "http", Path: "/"}, "10.0.0.5:20000", 302, checks.Success},
		{"not found", fleet.ServiceCheck{Type: "http", Path: "/"}, "10.0.0.5:20000", 404, checks.Failure},
		{"too many requests", fleet.ServiceCheck{Type: "http", Path: "/"}, "10.0.0.5:20000", 429, checks.Failure},
		{"a method that is none", fleet.ServiceCheck{Type: "http", Path: "/", Method: "NO METHOD"}, "10.0.0.5:20000", 200, checks.Failure},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var w *checksTest
			inVirtualTime(t, func(t *testing.T, ctx context.Context) {
				w = newChecksTest(t, service(tc.check))
				w.site.setServerStatus(tc.address, tc.answer)
				w.followRunning(ctx, 0)
				if r := w.onlyResult(t); r.Status != tc.want {
					t.Errorf("%+v, want %s", r, tc.want)
				}
			}, func() *checks.Checks { return w.Checks })
		})
	}
}

func TestPassingSince(t *testing.T) {
	var w *checksTest
	inVirtualTime(t, func(t *testing.T, ctx context.Context) {
		shown := service(fleet.ServiceCheck{Name: "shown", Type: "tcp", PortLabel: "admin", OnUpdate: fleet.OnUpdateIgnore})
		w = newChecksTest(t, service(fleet.ServiceCheck{Name: "alive", Type: "tcp", OnUpdate: fleet.OnUpdateRequireHealthy}), shown)
		if _, failing, ok := w.Passing("a"); ok || failing == "" {
			t.Errorf("passing before it is followed: %q", failing)
		}
		w.followRunning(ctx, 0)
		if _, failing, ok := w.Passing("a"); ok || !strings.Contains(failing, `"alive"`) {
			t.Errorf("passing, and nobody listens: %q", failing)
		}
		w.site.setServerStatus("10.0.0.5:20000", 200)
		passVirtualTime(30 * time.Second)
		since, failing, ok := w.Passing("a")
		if !ok || since != 10*time.Second {
			t.Errorf("passing since %s (%q), want 10s: the one that is only shown does not count", since, failing)
		}
		// The description of the machine or the start of the task changes.
		w.followRunning(ctx, 20*time.Second)
		if since, _, ok := w.Passing("a"); !ok || since != 30*time.Second {
			t.Errorf("after a restart passing since %s, want 30s", since)
		}
		w.Follow(ctx, w.alloc, map[string]time.Duration{})
		synctest.Wait()
		if r := w.Results("a"); len(r) != 0 {
			t.Errorf("checks of a task that does not run: %+v", r)
		}
		w.Forget("a")
		if _, _, ok := w.Passing("a"); ok {
			t.Error("passing, and forgotten")
		}
	}, func() *checks.Checks { return w.Checks })
}

func TestCheckRestart(t *testing.T) {
	var w *checksTest
	inVirtualTime(t, func(t *testing.T, ctx context.Context) {
		w = newChecksTest(t, service(fleet.ServiceCheck{
			Name: "alive", Type: "tcp", TaskName: "t", CheckRestart: &fleet.CheckRestart{Limit: 2, Grace: 15 * time.Second},
		}))
		w.followRunning(ctx, 0) // fails at 0 s and 10 s, within the grace
		passVirtualTime(15 * time.Second)
		w.site.setServerStatus("10.0.0.5:20000", 200) // passes at 20 s
		passVirtualTime(10 * time.Second)
		w.site.removeServer("10.0.0.5:20000") // fails at 30 s
		passVirtualTime(10 * time.Second)
		if got := w.restartReasons(); got != "" {
			t.Fatalf("restarted early: %s", got)
		}
		passVirtualTime(10 * time.Second) // and at 40 s
		const want = `a t: check "alive" is unhealthy`
		if got := w.restartReasons(); got != want {
			t.Fatalf("restarted %q, want %q", got, want)
		}
		passVirtualTime(time.Minute)
		if got := w.restartReasons(); got != want {
			t.Fatalf("restarted again before it has started: %q", got)
		}
		w.followRunning(ctx, w.sinceStart())
		passVirtualTime(15 * time.Second)
		if got := w.restartReasons(); got != want {
			t.Fatalf("restarted within the grace of its new start: %q", got)
		}
		passVirtualTime(20 * time.Second)
		if got := w.restartReasons(); got != want+"; "+want {
			t.Fatalf("restarted %q, want it twice", got)
		}
	}, func() *checks.Checks { return w.Checks })
}

// A failed restart is tried again.
func TestCheckRestartThatFails(t *testing.T) {
	var w *checksTest
	inVirtualTime(t, func(t *testing.T, ctx context.Context) {
		w = newChecksTest(t, service(fleet.ServiceCheck{Name: "alive", Type: "tcp", CheckRestart: &fleet.CheckRestart{Limit: 1}}))
		w.refuse = errors.New("not now")
		w.followRunning(ctx, 0)
		passVirtualTime(20 * time.Second)
		if got := w.restartReasons(); strings.Count(got, "unhealthy") != 3 {
			t.Errorf("restarts %q, want three attempts", got)
		}
	}, func() *checks.Checks { return w.Checks })
}

// setAddressLost removes the machine's address or restores it.
func (w *checksTest) setAddressLost(lost bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = lost
}

// A lost link also removes the machine's address, and restarts no task.
func TestChecksWhileTheAddressIsGone(t *testing.T) {
	var w *checksTest
	inVirtualTime(t, func(t *testing.T, ctx context.Context) {
		w = newChecksTest(t, service(fleet.ServiceCheck{Name: "alive", Type: "http", Path: "/", CheckRestart: &fleet.CheckRestart{Limit: 2}}))
		w.site.setServerStatus("10.0.0.5:20000", 200)
		w.followRunning(ctx, 0)
		w.setAddressLost(true)
		w.site.removeServer("10.0.0.5:20000")
		w.site.setServerStatus("127.0.0.1:20000", 200) // it listens on all addresses
		passVirtualTime(time.Minute)
		if since, failing, ok := w.Passing("a"); !ok || since != 0 {
			t.Errorf("passing since %s (%q), want 0s: what runs is to be found on the loopback address", since, failing)
		}
		w.site.removeServer("127.0.0.1:20000") // it listened on the lost address only
		passVirtualTime(time.Minute)
		if r := w.onlyResult(t); r.Status != checks.Failure {
			t.Errorf("nobody answers: %+v", r)
		}
		if got := w.restartReasons(); got != "" {
			t.Errorf("restarted, since the machine's address is gone: %s", got)
		}
		w.setAddressLost(false)
		passVirtualTime(20 * time.Second)
		if got := w.restartReasons(); got == "" {
			t.Error("not restarted, though the address is back and nobody answers")
		}
	}, func() *checks.Checks { return w.Checks })
}

// An address that the machine never has, for example behind a router, can fail a check.
func TestCheckOfAnAddressElsewhere(t *testing.T) {
	var w *checksTest
	inVirtualTime(t, func(t *testing.T, ctx context.Context) {
		w = newChecksTest(t, service(fleet.ServiceCheck{Name: "alive", Type: "tcp", CheckRestart: &fleet.CheckRestart{Limit: 2}}))
		w.setAddressLost(true)
		w.site.setServerStatus("10.0.0.5:20000", 200) // the router sends it back
		w.followRunning(ctx, 0)
		if r := w.onlyResult(t); r.Status != checks.Success {
			t.Errorf("it answers by its router: %+v", r)
		}
		w.site.removeServer("10.0.0.5:20000")
		passVirtualTime(30 * time.Second)
		if got := w.restartReasons(); got == "" {
			t.Error("not restarted, though nobody answers")
		}
	}, func() *checks.Checks { return w.Checks })
}

// Changes of the machine or the allocation that change no check do not restart the checks.
// TestCheckOfAnAddressInside: a check with the mode alloc, or of such a service, goes to the allocation's own address.
func TestCheckOfAnAddressInside(t *testing.T) {
	for _, tc := range []struct {
		service, check, port string
		want                 string
	}{
		{fleet.AddressAlloc, "", "", "172.26.64.2:8080"}, {fleet.AddressAuto, fleet.AddressAlloc, "", "172.26.64.2:8080"},
		{fleet.AddressAlloc, fleet.AddressHost, "", "10.0.0.5:20001"}, {fleet.AddressAlloc, "", "http", "10.0.0.5:20000"},
		{fleet.AddressAlloc, fleet.AddressAlloc, "http", "172.26.64.2:20000"},
	} {
		var w *checksTest
		inVirtualTime(t, func(t *testing.T, ctx context.Context) {
			s := service(fleet.ServiceCheck{Name: "alive", Type: "tcp", AddressMode: tc.check, PortLabel: tc.port})
			s.AddressMode, s.PortLabel = tc.service, "admin"
			w = newChecksTest(t, s)
			w.alloc.Allotment.Ports[1].To = 8080
			w.alloc.NetworkStatus = &fleet.NetworkStatus{InterfaceName: "eth0", Address: "172.26.64.2"}
			w.site.setServerStatus(tc.want, 200)
			w.followRunning(ctx, 0)
			if r := w.onlyResult(t); r.Status != checks.Success {
				t.Errorf("%+v: %+v", tc, r)
			}
			w.site.removeServer(tc.want)
			passVirtualTime(10 * time.Second)
			if r := w.onlyResult(t); r.Status != checks.Failure {
				t.Errorf("%+v, nobody listens: %+v", tc, r)
			}
		}, func() *checks.Checks { return w.Checks })
	}
}

// TestCheckOfADriversAddress: a check with the mode driver goes to the address of its task, as soon as that is known.
func TestCheckOfADriversAddress(t *testing.T) {
	var w *checksTest
	inVirtualTime(t, func(t *testing.T, ctx context.Context) {
		w = newChecksTest(t)
		s := service(fleet.ServiceCheck{Name: "alive", Type: "tcp"})
		s.AddressMode, s.PortLabel = fleet.AddressDriver, "6379"
		w.alloc.Job.TaskGroups[0].Tasks[0].Services = []fleet.Service{s}
		w.site.setServerStatus("172.17.0.2:6379", 200)
		w.followRunning(ctx, 0)
		if r := w.onlyResult(t); r.Status != checks.Failure {
			t.Errorf("before its address is known: %+v", r)
		}
		w.alloc.TaskStates = map[string]fleet.TaskState{"t": {State: fleet.TaskRunning, Address: "172.17.0.2"}}
		w.followRunning(ctx, 0)
		if r := w.onlyResult(t); r.Status != checks.Success {
			t.Errorf("%+v", r)
		}
	}, func() *checks.Checks { return w.Checks })
}

func TestChecksThatStayTheSame(t *testing.T) {
	var w *checksTest
	inVirtualTime(t, func(t *testing.T, ctx context.Context) {
		w = newChecksTest(t, service(fleet.ServiceCheck{Name: "alive", Type: "tcp"}))
		w.site.setServerStatus("10.0.0.5:20000", 200)
		w.followRunning(ctx, 0)
		passVirtualTime(15 * time.Second)
		w.node.DescriptionHash, w.alloc.AllocModifyIndex = "other", 7
		w.followRunning(ctx, 0)
		if since, failing, ok := w.Passing("a"); !ok || since != 0 {
			t.Errorf("passing since %s (%q), want 0s", since, failing)
		}
		w.node.Attributes = map[string]string{fleet.AttributeIPAddress: "10.0.0.9"}
		w.node.DescriptionHash = "moved"
		w.site.setServerStatus("10.0.0.9:20000", 200)
		passVirtualTime(5 * time.Second)
		w.site.removeServer("10.0.0.5:20000")
		w.followRunning(ctx, 0)
		if since, failing, ok := w.Passing("a"); !ok || since != 20*time.Second {
			t.Errorf("at its new address passing since %s (%q), want 20s", since, failing)
		}
	}, func() *checks.Checks { return w.Checks })
}

func TestNewRefusesWhatIsMissing(t *testing.T) {
	if _, err := checks.New(checks.Config{}); err == nil {
		t.Error("checks without a node")
	}
}
