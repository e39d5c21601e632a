package edge_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry/edge"
	"skerry/edge/contract"
	"skerry/edge/journal"
	"skerry/edge/local"
	"skerry/fleet"
	"skerry/syncproto"
	"skerry/syncproto/identity"
)

const (
	node  = "0e000000-0000-4000-8000-000000000001"
	boot1 = fleet.BootID("11111111-1111-4111-8111-111111111111")
	boot2 = fleet.BootID("22222222-2222-4222-8222-222222222222")
	shop  = fleet.AllocID("a0000000-0000-4000-8000-000000000001")
	batch = fleet.AllocID("b0000000-0000-4000-8000-000000000002")
	quiet = fleet.AllocID("c0000000-0000-4000-8000-000000000003") // its task t has no logs
	// nobody is an address where no hub answers.
	nobody = "127.0.0.1:9"
)

// minimalRunner is the smallest Runner: it runs nothing and records that.
type minimalRunner struct {
	alloc fleet.Alloc
	rec   contract.Recorder
	stop  chan string
}

func (r *minimalRunner) Run(ctx context.Context) error {
	select {
	case why := <-r.stop:
		return r.recordStatus(ctx, fleet.ClientComplete, fleet.TaskDead, why)
	default:
	}
	if err := r.recordStatus(ctx, fleet.ClientRunning, fleet.TaskRunning, "simulated"); err != nil {
		return err
	}
	select {
	case why := <-r.stop:
		return r.recordStatus(ctx, fleet.ClientComplete, fleet.TaskDead, why)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *minimalRunner) recordStatus(ctx context.Context, client, task, why string) error {
	return r.rec.Record(ctx, fleet.Transition{
		Kind: fleet.TransitionAlloc, Alloc: r.alloc.ID, ClientStatus: client, ClientDescription: why,
		Task: "t", TaskState: &fleet.TaskState{State: task},
	})
}

func (r *minimalRunner) Update(fleet.Alloc)                                   {}
func (r *minimalRunner) Stop(reason string)                                   { r.stop <- reason }
func (r *minimalRunner) Restart(context.Context, string, string) error        { return nil }
func (*minimalRunner) RestartUnhealthy(context.Context, string, string) error { return nil }

func (r *minimalRunner) Signal(context.Context, string, string, string) error {
	return nil
}

// runnerRecorder records the last states that runners are made with.
type runnerRecorder struct {
	mu   sync.Mutex
	last map[fleet.AllocID][]contract.LastState
}

func (m *runnerRecorder) newRunnerFunc(edge.Machine) (contract.New, error) {
	return func(a fleet.Alloc, last contract.LastState, rec contract.Recorder) (contract.Runner, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.last == nil {
			m.last = map[fleet.AllocID][]contract.LastState{}
		}
		m.last[a.ID] = append(m.last[a.ID], last)
		return &minimalRunner{alloc: a, rec: rec, stop: make(chan string, 1)}, nil
	}, nil
}

func (m *runnerRecorder) lastStatesOf(id fleet.AllocID) []contract.LastState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last[id]
}

// description describes a machine that never changes.
type description struct{ node fleet.Node }

func (d description) Read(context.Context) (fleet.Node, error) { return d.node, nil }
func (d description) Run(ctx context.Context) error            { <-ctx.Done(); return nil }
func (d description) Node() fleet.Node                         { return d.node }
func (d description) Changed() <-chan struct{}                 { return nil }

func describe(configured fleet.Node) (edge.Describer, error) {
	configured.DescriptionHash = "h"
	return description{configured}, nil
}

// logBuffer collects the edge's log.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}
func (l *logBuffer) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.buf.String() }

func config(dir string, m *runnerRecorder, logs io.Writer) edge.Config {
	if m == nil {
		m = &runnerRecorder{}
	}
	return edge.Config{
		DataDir: dir, Hubs: []string{nobody}, Name: "test", Version: "0.0.1", BootID: boot1,
		Runners: m.newRunnerFunc, Describe: describe, Log: slog.New(slog.NewTextHandler(logs, nil)),
	}
}

// runningEdge is one run of the agent.
type runningEdge struct {
	*edge.Edge
	*local.Client
	stop func() error // ends it and returns Run's error
}

func mustStart(t testing.TB, cfg edge.Config) *runningEdge {
	t.Helper()
	e, err := edge.Open(cfg)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	l := &runningEdge{Edge: e, Client: local.NewClient(e.Socket())}
	l.stop = sync.OnceValue(func() error {
		cancel()
		return errors.Join(<-ended, e.Close())
	})
	t.Cleanup(func() {
		if err := l.stop(); err != nil {
			t.Errorf("the edge ended with: %v", err)
		}
	})
	return l
}

func mustRecover(t testing.TB, l *runningEdge) {
	t.Helper()
	select {
	case <-l.Recovered():
	case <-time.After(10 * time.Second):
		s, err := l.Status(context.Background())
		t.Fatalf("tasks do not run: %+v, %v", s, err)
	}
}

// authority is a minimal CA of a cluster.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func mustAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := identity.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err == nil {
		a.cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// issueCertificate issues a certificate (DER) for the key of a role and a name.
func (a *authority) issueCertificate(role, name string, public any) ([]byte, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: identity.CommonName(role, name)},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
	}
	return x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
}

func mustWriteFile(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// mustEnrolled makes a data directory as after an enrolment and one delivery.
func mustEnrolled(t testing.TB, allocs ...fleet.AllocID) string {
	t.Helper()
	return mustEnrolledBy(t, mustAuthority(t), allocs...)
}

func mustEnrolledBy(t testing.TB, ca *authority, allocs ...fleet.AllocID) string {
	t.Helper()
	dir := t.TempDir()
	key, err := identity.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ca.issueCertificate(fleet.RoleEdge, node, &key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := identity.EncodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"node-id": []byte(node), "key.pem": pem, "cert.pem": identity.EncodeCert(cert), "ca.pem": identity.EncodeCert(ca.cert.Raw),
	} {
		mustWriteFile(t, filepath.Join(dir, "identity", name), b)
	}
	j, err := journal.Open(journal.Config{Path: filepath.Join(dir, "journal.db"), BootID: boot1, Mono: func() time.Duration { return time.Minute }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.PutDesired(context.Background(), delivery(t, allocs)); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// mustBody encodes a job whose group has a disconnect block.
func mustBody(t testing.TB, d *fleet.Disconnect) []byte {
	t.Helper()
	body, err := syncproto.EncodeJob(&fleet.Job{
		ID: "shop", Name: "shop", TaskGroups: []fleet.TaskGroup{
			{Name: "g", Disconnect: d, Tasks: []fleet.Task{{Name: "t"}}},
			{Name: "quiet", Tasks: []fleet.Task{{Name: "t", LogConfig: fleet.LogConfig{Disabled: true}}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func delivery(t testing.TB, allocs []fleet.AllocID) syncproto.Desired {
	t.Helper()
	d := syncproto.Desired{Index: 9, Full: true, Cluster: "c", Bodies: []syncproto.Body{{Hash: "h", Job: mustBody(t, nil)}}}
	for i, id := range allocs {
		group := "g"
		if id == quiet {
			group = "quiet"
		}
		d.Run = append(d.Run, syncproto.DesiredAlloc{ID: id, JobID: "shop", JobHash: "h", TaskGroup: group, Name: fmt.Sprintf("shop.g[%d]", i)})
	}
	return d
}

func TestTasksRunFromTheJournalWithoutAHub(t *testing.T) {
	ctx := context.Background()
	dir, m, logs := mustEnrolled(t, shop, batch), &runnerRecorder{}, &logBuffer{}
	l := mustStart(t, config(dir, m, logs))
	mustRecover(t, l)
	s, err := l.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if s.NodeID != node || !s.Enrolled || len(s.Allocs) != 2 || s.Allocs[0].ClientStatus != fleet.ClientRunning || s.Journal.DesiredIndex != 9 || !s.Allocs[0].Unsent {
		t.Fatalf("status: %+v", s)
	}
	if err := l.stop(); err != nil {
		t.Fatal(err)
	}
	if text := logs.String(); !strings.Contains(text, `msg="tasks running" after=`) || !strings.Contains(text, "allocations=2") {
		t.Fatalf("no line says how long it took:\n%s", text)
	}

	cfg := config(dir, m, logs) // the machine reboots without a link
	cfg.BootID = boot2
	l = mustStart(t, cfg)
	mustRecover(t, l)
	for _, id := range []fleet.AllocID{shop, batch} {
		if last := m.lastStatesOf(id); len(last) != 2 || last[0].Known || !last[1].Known || !last[1].Rebooted || last[1].ClientStatus != fleet.ClientRunning {
			t.Fatalf("runners of %s were made with %+v", id, last)
		}
	}
	if err := l.Stop(ctx, local.StopRequest{Alloc: "a0", Reason: "too loud", MayReturn: true}); err != nil {
		t.Fatal(err)
	}
	mustReachStatus(t, l, "stopped", func(s local.Status) bool {
		return s.Allocs[0].ClientStatus == fleet.ClientComplete && s.Allocs[0].Desired == fleet.DesiredStop
	})
	if err := l.stop(); err != nil {
		t.Fatal(err)
	}

	l = mustStart(t, cfg)
	mustRecover(t, l)
	if n := len(m.lastStatesOf(shop)); n != 2 {
		t.Fatalf("what was stopped on site was started again: %d runners", n)
	}
	ts, err := l.History(ctx, shop)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, tr := range ts {
		kinds = append(kinds, fmt.Sprintf("%s/%s", tr.Kind, tr.ClientStatus))
	}
	if got := strings.Join(kinds, " "); got != "alloc/running alloc/running operator/ alloc/complete" {
		t.Fatalf("history: %s", got)
	}
}

func mustReachStatus(t testing.TB, l *runningEdge, what string, seen func(local.Status) bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(10 * time.Second)
	for {
		s, err := l.Status(context.Background())
		if err == nil && seen(s) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never %s: %+v, %v", what, s, err)
		}
	}
}

func TestLogsAreRead(t *testing.T) {
	ctx := context.Background()
	dir := mustEnrolled(t, shop)
	l := mustStart(t, config(dir, &runnerRecorder{}, io.Discard))
	mustRecover(t, l)
	mustWriteFile(t, filepath.Join(dir, "allocs", string(shop), "alloc", "logs", "t.stdout.0"), []byte("hello"))
	out, err := l.Logs(ctx, local.LogRequest{Alloc: shop})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if b, err := io.ReadAll(out); err != nil || string(b) != "hello" {
		t.Fatalf("logs: %q, %v", b, err)
	}
	for req, code := range map[local.LogRequest]fleet.Code{
		{Alloc: shop, Task: "other"}:   fleet.CodeInvalid,
		{Alloc: "ffff"}:                fleet.CodeNotFound,
		{Alloc: ""}:                    fleet.CodeInvalid,
		{Alloc: shop, Origin: "there"}: fleet.CodeInvalid,
	} {
		if _, err := l.Logs(ctx, req); fleet.CodeOf(err) != code {
			t.Errorf("logs of %+v: %v", req, err)
		}
	}
}

// TestDisabledLogsAreRefused: it is said that the job disables the logs of a task, and not that it printed nothing.
func TestDisabledLogsAreRefused(t *testing.T) {
	ctx := context.Background()
	l := mustStart(t, config(mustEnrolled(t, quiet), &runnerRecorder{}, io.Discard))
	mustRecover(t, l)
	_, err := l.Logs(ctx, local.LogRequest{Alloc: quiet})
	if fleet.CodeOf(err) != fleet.CodeNotFound || !strings.Contains(err.Error(), `the job disables the logs of task "t"`) || !strings.Contains(err.Error(), "logs block") {
		t.Errorf("logs: %v", err)
	}
}

func TestASecondProcessIsTurnedAway(t *testing.T) {
	dir := mustEnrolled(t)
	mustStart(t, config(dir, &runnerRecorder{}, io.Discard))
	if _, err := edge.Open(config(dir, &runnerRecorder{}, io.Discard)); fleet.CodeOf(err) != fleet.CodeConflict {
		t.Fatalf("open: %v", err)
	}
}

func TestALostJournalIsSaid(t *testing.T) {
	dir := mustEnrolled(t)
	if err := os.Remove(filepath.Join(dir, "journal.db")); err != nil {
		t.Fatal(err)
	}
	l := mustStart(t, config(dir, &runnerRecorder{}, io.Discard))
	mustRecover(t, l)
	s, err := l.Status(context.Background())
	if err != nil || len(s.Journal.Quarantined) != 1 || s.Journal.Lost == "" {
		t.Fatalf("journal: %+v, %v", s.Journal, err)
	}
}

func TestWhatOpenRefuses(t *testing.T) {
	ca := mustAuthority(t)
	token := identity.NewToken(ca.cert.Raw).String()
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "token")
		mustWriteFile(t, path, []byte(text))
		return path
	}
	for name, c := range map[string]struct {
		change func(*edge.Config)
		code   fleet.Code
	}{
		"no token":       {func(*edge.Config) {}, fleet.CodeTokenBad},
		"token missing":  {func(c *edge.Config) { c.TokenFile = filepath.Join(t.TempDir(), "no") }, fleet.CodeTokenBad},
		"token cut":      {func(c *edge.Config) { c.TokenFile = file(token[:40]) }, fleet.CodeTokenBad},
		"token altered":  {func(c *edge.Config) { c.TokenFile = file(strings.Replace(token, token[60:61], "~", 1)) }, fleet.CodeTokenBad},
		"no hub":         {func(c *edge.Config) { c.TokenFile, c.Hubs = file(token), nil }, fleet.CodeInvalid},
		"hub of no port": {func(c *edge.Config) { c.Hubs = []string{"hub"} }, fleet.CodeInvalid},
		"no data dir":    {func(c *edge.Config) { c.DataDir = "" }, fleet.CodeInvalid},
		"unknown zone":   {func(c *edge.Config) { c.TokenFile, c.TimeZone = file(token), "Mars/Olympus" }, fleet.CodeInvalid},
		"much meta": {func(c *edge.Config) {
			c.TokenFile, c.Meta = file(token), map[string]string{}
			for i := range syncproto.MaxHeartbeat / syncproto.MaxNodeText {
				c.Meta[fmt.Sprint("key", i)] = strings.Repeat("x", syncproto.MaxNodeText)
			}
		}, fleet.CodeFrameTooLarge},
		"data dir a file": {func(c *edge.Config) { c.DataDir = filepath.Join(file(""), "x") }, fleet.CodeForbidden},
		"newer data dir": {func(c *edge.Config) {
			mustWriteFile(t, filepath.Join(c.DataDir, "version"), []byte("7"))
		}, fleet.CodeVersion},
		"identity damaged": {func(c *edge.Config) {
			mustWriteFile(t, filepath.Join(c.DataDir, "identity", "cert.pem"), []byte("?"))
		}, fleet.CodeInvalid},
	} {
		cfg := config(t.TempDir(), &runnerRecorder{}, io.Discard)
		c.change(&cfg)
		e, err := edge.Open(cfg)
		if fleet.CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			e.Close()
		}
	}
}

// edge must not depend on the real runner.
func TestTheEdgeDoesNotKnowTheRealRunner(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "skerry/edge").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, dep := range strings.Fields(string(out)) {
		for _, no := range []string{"skerry/edge/runner", "skerry/drivers", "skerry/devices", "skerry/hub", "skerry/edge/fingerprint"} {
			if dep == no || strings.HasPrefix(dep, no+"/") {
				t.Errorf("skerry/edge imports %s", dep)
			}
		}
	}
}
