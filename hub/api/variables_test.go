package api_test

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/fleet"
	hubapi "skerry/hub/api"
	"skerry/hub/rpc"
	"skerry/hub/secrets"
	"skerry/hub/state"
)

// plainKeys keeps root keys unencrypted; missing makes them unreadable.
type plainKeys struct{ missing error }

func (k *plainKeys) Wrap(plain, _ []byte) (wrapped []byte, by string, err error) {
	return plain, "none", k.missing
}

func (k *plainKeys) Unwrap(_ string, wrapped, _ []byte) ([]byte, error) { return wrapped, k.missing }

func secretsOf(h *fakeHub) *secrets.Secrets { return secretsWith(h, &plainKeys{}) }

func secretsWith(h *fakeHub, keys *plainKeys) *secrets.Secrets {
	return secrets.New(secrets.Config{State: h.store, Apply: h, Lead: h, Wrap: keys, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
}

// alwaysLeads is a leadership that this hub has.
type alwaysLeads struct{}

func (alwaysLeads) IsLeader() bool                      { return true }
func (alwaysLeads) Leader() (fleet.HubID, string, bool) { return "hub1", "", true }

func locksOf(h *fakeHub) *secrets.Locks {
	peers, err := rpc.New(rpc.Config{Pool: new(rpc.Pool), Self: "hub1", Leadership: alwaysLeads{}})
	if err != nil {
		panic(err)
	}
	return secrets.NewLocks(secrets.LocksConfig{Hub: "hub1", State: h.store, Lead: h, Peers: peers, Log: slog.New(slog.DiscardHandler)})
}

// mustServeWith serves a hub with these secrets and locks, and returns Nomad's client of it.
func mustServeWith(tb testing.TB, h *fakeHub, s *secrets.Secrets, l *secrets.Locks) *nomad.Client {
	tb.Helper()
	a, err := hubapi.New(hubapi.Config{State: h.store, Cluster: h, Edges: h, Jobs: h, Garbage: h, Events: h, Secrets: s, Locks: l})
	if err != nil {
		tb.Fatal(err)
	}
	srv := httptest.NewServer(a)
	tb.Cleanup(srv.Close)
	client, err := nomad.NewClient(&nomad.Config{Address: srv.URL})
	if err != nil {
		tb.Fatal(err)
	}
	return client
}

// waitForLeader polls until renewals of locks reach the leader task.
func waitForLeader(tb testing.TB, l *secrets.Locks) {
	tb.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for rpc.IsNoLeader(l.RenewLock(tb.Context(), "default", "none", "none")) {
		<-tick.C
	}
}

// TestVariables drives them with Nomad's client: created, read, listed by prefix and pages, replaced with and without
// a check, and deleted.
func TestVariables(t *testing.T) {
	_, _, c := mustServe(t)
	vars := c.Variables()
	made, _, err := vars.Create(&nomad.Variable{Path: "app/db", Items: nomad.VariableItems{"user": "a", "password": "geheim"}}, nil)
	if err != nil || made.Namespace != "default" || made.Path != "app/db" || made.Items["password"] != "geheim" || made.CreateIndex == 0 || made.CreateTime == 0 {
		t.Fatalf("%+v, %v", made, err)
	}
	read, meta, err := vars.Read("app/db", nil)
	if err != nil || !maps.Equal(read.Items, made.Items) || read.ModifyIndex != made.ModifyIndex || meta.LastIndex != made.ModifyIndex {
		t.Fatalf("%+v, %+v, %v", read, meta, err)
	}
	var conflict nomad.ErrCASConflict
	if _, _, err := vars.CheckedCreate(&nomad.Variable{Path: "app/db", Items: nomad.VariableItems{"k": "v"}}, nil); !errors.As(err, &conflict) ||
		conflict.Conflict.ModifyIndex != made.ModifyIndex || conflict.Conflict.Items["user"] != "a" {
		t.Fatalf("created twice: %+v, %v", conflict.Conflict, err)
	}
	read.Items["user"] = "b"
	changed, _, err := vars.CheckedUpdate(read, nil)
	if err != nil || changed.ModifyIndex <= made.ModifyIndex || changed.CreateIndex != made.CreateIndex || changed.Items["user"] != "b" {
		t.Fatalf("%+v, %v", changed, err)
	}
	if _, _, err := vars.CheckedUpdate(read, nil); !errors.As(err, &conflict) || conflict.Conflict.ModifyIndex != changed.ModifyIndex {
		t.Fatalf("updated with an old index: %v", err)
	}
	if _, err := vars.CheckedDelete("app/db", made.ModifyIndex, nil); !errors.As(err, &conflict) || conflict.Conflict.ModifyIndex != changed.ModifyIndex {
		t.Fatalf("deleted with an old index: %v", err)
	}
	for _, path := range []string{"app/a", "app/c", "nomad/jobs/shop"} {
		if _, _, err := vars.Create(&nomad.Variable{Path: path, Items: nomad.VariableItems{"k": "v"}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	page, meta, err := vars.PrefixList("app/", &nomad.QueryOptions{PerPage: 2})
	if err != nil || len(page) != 2 || page[0].Path != "app/a" || page[1].Path != "app/c" || meta.NextToken == "" {
		t.Fatalf("%+v, %v", page, err)
	}
	page, meta, err = vars.PrefixList("app/", &nomad.QueryOptions{PerPage: 2, NextToken: meta.NextToken})
	if err != nil || len(page) != 1 || page[0].Path != "app/db" || meta.NextToken != "" {
		t.Fatalf("%+v, %v", page, err)
	}
	if _, err := vars.CheckedDelete("app/db", changed.ModifyIndex, nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := vars.Read("app/db", nil); !errors.Is(err, nomad.ErrVariablePathNotFound) {
		t.Fatalf("a deleted one: %v", err)
	}
	if gone, _, err := vars.Peek("app/db", nil); gone != nil || err != nil {
		t.Fatalf("%+v, %v", gone, err)
	}
	if _, err := vars.Delete("app/db", nil); err != nil {
		t.Fatalf("deleted twice: %v", err)
	}
}

// TestVariableIsWaitedFor: a blocking query ends when the variable changes.
func TestVariableIsWaitedFor(t *testing.T) {
	_, _, c := mustServe(t)
	made, _, err := c.Variables().Create(&nomad.Variable{Path: "a", Items: nomad.VariableItems{"k": "1"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan string)
	go func() {
		v, _, err := c.Variables().Read("a", &nomad.QueryOptions{WaitIndex: made.ModifyIndex, WaitTime: time.Minute})
		done <- fmt.Sprint(v.Items["k"], err)
	}()
	made.Items["k"] = "2"
	if _, _, err := c.Variables().Update(made, nil); err != nil {
		t.Fatal(err)
	}
	if got := <-done; got != "2<nil>" {
		t.Fatal(got)
	}
}

// TestVariableLocks drives a lock with Nomad's client: acquired on a path without a variable, renewed, refused to others,
// and released.
func TestVariableLocks(t *testing.T) {
	h := &fakeHub{store: state.New(), leader: "hub1"}
	locks := locksOf(h)
	c := mustServeWith(t, h, secretsOf(h), locks)
	go locks.Lead(t.Context())
	waitForLeader(t, locks)
	wanted := nomad.Variable{Path: "app/lock", Lock: &nomad.VariableLock{TTL: "30s", LockDelay: "20s"}, Items: nomad.VariableItems{"by": "one"}}
	one, err := c.Locks(nomad.WriteOptions{}, wanted)
	if err != nil {
		t.Fatal(err)
	}
	if path, err := one.Acquire(t.Context()); err != nil || path != "app/lock" {
		t.Fatal(path, err)
	}
	held, _, err := c.Variables().Read("app/lock", nil)
	if err != nil || held.LockID() == "" || held.Lock.TTL != "30s" || held.Lock.LockDelay != "20s" || held.Items["by"] != "one" {
		t.Fatalf("%+v, %v", held, err)
	}
	two, err := c.Locks(nomad.WriteOptions{}, wanted)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := two.Acquire(t.Context()); !errors.Is(err, nomad.ErrLockConflict) || strings.Contains(err.Error(), held.LockID()) {
		t.Fatalf("acquired twice: %v", err)
	}
	if err := one.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func(*nomad.Variable, *nomad.WriteOptions) error{
		"renew": func(v *nomad.Variable, q *nomad.WriteOptions) error {
			_, _, err := c.Variables().RenewLock(v, q)
			return err
		},
		"release": func(v *nomad.Variable, q *nomad.WriteOptions) error {
			_, _, err := c.Variables().ReleaseLock(v, q)
			return err
		},
	} {
		other := &nomad.Variable{Path: "app/lock", Lock: &nomad.VariableLock{ID: "other"}}
		if err := do(other, nil); err == nil || !strings.Contains(err.Error(), "409") || strings.Contains(err.Error(), held.LockID()) {
			t.Errorf("%s by another: %v", name, err)
		}
	}
	stranger := &nomad.Variable{Path: "app/lock", Items: nomad.VariableItems{"by": "two"}}
	if _, _, err := c.Variables().Update(stranger, nil); err == nil || !strings.Contains(err.Error(), "409") {
		t.Fatalf("changed by another: %v", err)
	}
	if list, _, err := c.Variables().List(nil); err != nil || len(list) != 1 || list[0].Lock == nil || list[0].Lock.ID != "" {
		t.Fatalf("the list has %+v, %v", list[0].Lock, err)
	}
	if err := one.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := two.Acquire(t.Context()); err != nil {
		t.Fatalf("acquired after the release: %v", err)
	}
}

// TestVariableRequestsAreChecked: each bad request is refused before anything changes.
func TestVariableRequestsAreChecked(t *testing.T) {
	h, srv, _ := mustServe(t)
	for _, tc := range []struct{ method, path, body, want string }{
		{"PUT", "/v1/var/a.b", `{"Items": {"k": "v"}}`, "not a valid path"},
		{"PUT", "/v1/var/%C3%A4", `{"Items": {"k": "v"}}`, "not a valid path"},
		{"PUT", "/v1/var/a%0Ab", `{"Items": {"k": "v"}}`, "not a valid path"},
		{"PUT", "/v1/var/..%2Fa", `{"Items": {"k": "v"}}`, "not a valid path"},
		{"PUT", "/v1/var/a%2F..%2Fb", `{"Items": {"k": "v"}}`, "not a valid path"},
		{"PUT", "/v1/var/a%2F%2Fb", `{"Items": {"k": "v"}}`, "not a valid path"},
		{"PUT", "/v1/var/%2Fa", `{"Items": {"k": "v"}}`, "not a valid path"},
		{"PUT", "/v1/var/a/", `{"Items": {"k": "v"}}`, "not a valid path"},
		{"PUT", "/v1/var/a", `{"Path": "ä", "Items": {"k": "v"}}`, `the path "ä"`},
		{"PUT", "/v1/var/nomad/x", `{"Items": {"k": "v"}}`, "reserved"},
		{"PUT", "/v1/var/a", `{}`, "has no Items"},
		{"PUT", "/v1/var/a", `{"Items": {"k": 1}}`, "wrong type"},
		{"PUT", "/v1/var/a", `{"Items": {"k": "v"}, "Values": {"x": "y"}}`, "Values"},
		{"PUT", "/v1/var/a", `{"Path": "b", "Items": {"k": "v"}}`, `the path "b"`},
		{"PUT", "/v1/var/a?namespace=x", `{"Namespace": "y", "Items": {"k": "v"}}`, `the namespace "y"`},
		{"PUT", "/v1/var/a?namespace=x", `{"Items": {"k": "v"}}`, "no namespace"},
		{"PUT", "/v1/var/a", `{"Items": {"": "v"}}`, "no name"},
		{"PUT", "/v1/var/a", `{"Items": {"k": "` + strings.Repeat("x", 64<<10) + `"}}`, "at most 65536"},
		{"PUT", "/v1/var/a?cas=x", `{"Items": {"k": "v"}}`, "cas"},
		{"PUT", "/v1/var/a?lock-acquire&cas=1", `{}`, "more than one"},
		{"PUT", "/v1/var/a?lock-acquire", `{"Lock": {"TTL": "9s"}}`, "allowed are"},
		{"PUT", "/v1/var/a?lock-acquire", `{"Lock": {"TTL": "soon"}}`, "not a duration"},
		{"PUT", "/v1/var/a?lock-acquire", `{"Lock": {"Ttl2": "1m"}}`, "unknown field"},
		{"PUT", "/v1/var/a?lock-renew", `{}`, "no Lock.ID"},
		{"PUT", "/v1/var/a?lock-release", `{"Lock": {"TTL": "15s"}}`, "no Lock.ID"},
		{"GET", "/v1/var/a..b", "", "not a valid path"},
		{"DELETE", "/v1/var/a?cas=-1", "", "cas"},
		{"DELETE", "/v1/var/nomad", "", "reserved"},
		{"PUT", "/v1/operator/keyring/rotate?algo=rot13", "", "not supported"},
		{"PUT", "/v1/operator/keyring/rotate?publish_time=5", "", "not supported"},
		{"PUT", "/v1/operator/keyring/rotate?full=2", "", "neither true nor false"},
		{"DELETE", "/v1/operator/keyring/key/x?force=true", "", "would be lost"},
	} {
		if status, body := mustAnswer(t, tc.method, srv.URL+tc.path, tc.body); status != http.StatusBadRequest || !strings.Contains(body, tc.want) {
			t.Errorf("%s %s %.60s: %d %.300s, want %q", tc.method, tc.path, tc.body, status, body, tc.want)
		}
	}
	for v := range h.store.View().Variables("*", "") {
		t.Errorf("there is a variable %s", v.Path)
	}
}

// TestKeyring drives it with Nomad's client.
func TestKeyring(t *testing.T) {
	_, _, c := mustServe(t)
	if _, _, err := c.Variables().Create(&nomad.Variable{Path: "a", Items: nomad.VariableItems{"k": "v"}}, nil); err != nil {
		t.Fatal(err)
	}
	list, _, err := c.Keyring().List(nil)
	if err != nil || len(list) != 1 || list[0].State != nomad.RootKeyStateActive || list[0].Algorithm != nomad.EncryptionAlgorithmAES256GCM || list[0].CreateTime == 0 {
		t.Fatalf("%+v, %v", list, err)
	}
	first := list[0].KeyID
	made, _, err := c.Keyring().Rotate(&nomad.KeyringRotateOptions{}, nil)
	if err != nil || made.KeyID == first || made.State != nomad.RootKeyStateActive {
		t.Fatalf("%+v, %v", made, err)
	}
	for id, want := range map[string]string{first: "such as a in namespace default", made.KeyID: "active", "none": "no such key"} {
		if _, err := c.Keyring().Delete(&nomad.KeyringDeleteOptions{KeyID: id}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("remove %s: %v, want %q", id, err, want)
		}
	}
	if v, _, err := c.Variables().Read("a", nil); err != nil || v.Items["k"] != "v" {
		t.Fatalf("after a rotation: %+v, %v", v, err)
	}
	if _, err := c.Variables().Delete("a", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Keyring().Delete(&nomad.KeyringDeleteOptions{KeyID: first}, nil); err != nil {
		t.Fatal(err)
	}
}

// TestRestoreWithoutTheKey is refused before anything changes, and says which key is missing; force restores anyhow.
func TestRestoreWithoutTheKey(t *testing.T) {
	h := &fakeHub{store: state.New(), leader: "hub1"}
	keys := &plainKeys{}
	c := mustServeWith(t, h, secretsWith(h, keys), locksOf(h))
	mustApply(t, h, state.ClusterInit{Cluster: state.Cluster{ID: "cluster"}})
	if _, _, err := c.Variables().Create(&nomad.Variable{Path: "a", Items: nomad.VariableItems{"k": "v"}}, nil); err != nil {
		t.Fatal(err)
	}
	file := mustSave(t, c)
	keys.missing = fleet.Errorf(fleet.CodeUnavailable, "the state key 1234 is missing").WithHint("copy the file")
	before := h.store.View().Index()
	url := c.Address() + "/v1/operator/snapshot"
	if status, body := mustAnswer(t, "PUT", url, string(file)); status != http.StatusInternalServerError || !strings.Contains(body, "such as a: the state key 1234 is missing; nothing was changed") ||
		!strings.Contains(body, "copy the file; --force") || h.store.View().Index() != before {
		t.Fatalf("%d %s", status, body)
	}
	if status, body := mustAnswer(t, "PUT", url+"?force=true", string(file)); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
}
