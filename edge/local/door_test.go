package local_test

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"skerry/edge/local"
	"skerry/edge/store"
	"skerry/fleet"
)

// doorAgent is an Agent that takes one site code, of Ann, and records what each request needs.
type doorAgent struct {
	*fakeAgent
	needed []string
	by     string // who started an allocation last
}

func (a *doorAgent) Admit(ctx context.Context, code, capability string) (context.Context, error) {
	a.needed = append(a.needed, capability)
	if code != "right" {
		return nil, fleet.Errorf(fleet.CodeForbidden, "no code, or a wrong one")
	}
	return local.WithPerson(ctx, "Ann", "k7m2"), nil
}

func (a *doorAgent) Start(ctx context.Context, _ fleet.AllocID, _ string) (local.Started, error) {
	a.by = local.PeerOf(ctx)
	return local.Started{}, nil
}

func (a *doorAgent) CopyAudit(io.Writer, uint64) error { return nil }

func (a *doorAgent) Store(context.Context) (local.Store, error) { return local.Store{}, nil }

func (a *doorAgent) LoadStore(context.Context, store.Key, string, io.Reader) (store.Entry, error) {
	return store.Entry{}, nil
}

func (a *doorAgent) RemoveStored(context.Context, string) (int, error) { return 0, nil }

// TestEveryRequestIsAtTheDoor: each request needs its capability, does nothing without a code or with a wrong one, and the
// person of a right code is who did it. The client knows which refusals a code would change.
func TestEveryRequestIsAtTheDoor(t *testing.T) {
	requests := []struct {
		capability string
		send       func(ctx context.Context, c *local.Client) error
	}{
		{fleet.SiteMayRead, func(ctx context.Context, c *local.Client) error { _, err := c.Status(ctx); return err }},
		{fleet.SiteMayRead, func(ctx context.Context, c *local.Client) error { _, err := c.History(ctx, ""); return err }},
		{fleet.SiteMayRead, func(ctx context.Context, c *local.Client) error { _, err := c.Services(ctx, "", ""); return err }},
		{fleet.SiteMayRead, func(ctx context.Context, c *local.Client) error { _, err := c.Checks(ctx, ""); return err }},
		{fleet.SiteMayRead, func(ctx context.Context, c *local.Client) error { return closed(c.Logs(ctx, local.LogRequest{})) }},
		{fleet.SiteMayRead, func(ctx context.Context, c *local.Client) error { return closed(c.Audit(ctx, 0)) }},
		{fleet.SiteMayRead, func(ctx context.Context, c *local.Client) error { _, err := c.Store(ctx); return err }},
		{fleet.SiteMayWrite, func(ctx context.Context, c *local.Client) error { return c.Stop(ctx, local.StopRequest{}) }},
		{fleet.SiteMayWrite, func(ctx context.Context, c *local.Client) error { _, err := c.Start(ctx, "a1", ""); return err }},
		{fleet.SiteMayWrite, func(ctx context.Context, c *local.Client) error { return c.Restart(ctx, "a1", "", "") }},
		{fleet.SiteMayWrite, func(ctx context.Context, c *local.Client) error {
			_, err := c.LoadStore(ctx, "s", "", "n", strings.NewReader("x"))
			return err
		}},
		{fleet.SiteMayWrite, func(ctx context.Context, c *local.Client) error { _, err := c.RemoveStored(ctx, "s"); return err }},
		{fleet.SiteMayExec, func(ctx context.Context, c *local.Client) error {
			_, err := c.Exec(ctx, local.ExecRequest{Alloc: "a1", Command: []string{"sh"}}, fleet.Exec{Stdin: io.NopCloser(strings.NewReader("")), Stdout: io.Discard, Stderr: io.Discard})
			return err
		}},
	}
	agent := &doorAgent{fakeAgent: &fakeAgent{output: func(context.Context) io.ReadCloser { return io.NopCloser(strings.NewReader("")) }}}
	c := mustServe(t, filepath.Join(t.TempDir(), "local.sock"), agent)
	for i, r := range requests {
		for _, code := range []string{"", "wrong"} {
			err := r.send(t.Context(), c.WithSiteCode(code))
			if fleet.CodeOf(err) != fleet.CodeForbidden || local.NeedsSiteCode(err) != (code == "") {
				t.Errorf("request %d with the code %q: %v", i, code, err)
			}
		}
		if len(agent.asked) != 0 {
			t.Fatalf("request %d did %q without a right code", i, agent.asked)
		}
		if err := r.send(t.Context(), c.WithSiteCode("right")); err != nil {
			t.Errorf("request %d: %v", i, err)
		}
		for _, needed := range agent.needed {
			if needed != r.capability {
				t.Errorf("request %d needs %q, not %q", i, needed, r.capability)
			}
		}
		agent.asked, agent.needed = nil, nil
	}
	if agent.by != "Ann (site code k7m2)" {
		t.Errorf("started by %q", agent.by)
	}
}

// closed closes an answer.
func closed(answer io.ReadCloser, err error) error {
	if err != nil {
		return err
	}
	return answer.Close()
}
