package hub_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	nomad "github.com/hashicorp/nomad/api"
)

// TestVariablesOutliveHubs: items and a lock are there after the leader has died, and no hub's snapshot has the items in
// clear. The holder of a lock goes on with the new leader.
func TestVariablesOutliveHubs(t *testing.T) {
	hubs := mustCluster(t, 3)
	secret := "marked-secret-value"
	leader := leaderOf(hubs)
	if leader == nil {
		leader = hubs[0]
	}
	var rest []*runningHub
	for _, h := range hubs {
		if h != leader {
			rest = append(rest, h)
		}
	}
	follower := mustNomadClient(t, "http://"+rest[0].HTTPAddr(), nomad.TLSConfig{})
	made, _, err := follower.Variables().Create(&nomad.Variable{Path: "app/db", Items: nomad.VariableItems{"password": secret}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := follower.Locks(nomad.WriteOptions{}, nomad.Variable{Path: "app/lock", Lock: &nomad.VariableLock{TTL: "10s", LockDelay: "1ms"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := lock.Renew(t.Context()); err != nil {
		t.Fatalf("renewed through a hub that does not lead: %v", err)
	}
	if _, _, err := follower.Keyring().Rotate(&nomad.KeyringRotateOptions{Full: true}, nil); err != nil {
		t.Fatal(err)
	}
	leader.stopHub()
	waitUntil(t, "another hub leads", rest[0].describeState, func() bool { return leaderOf(rest) != nil })
	for _, h := range rest {
		c := mustNomadClient(t, "http://"+h.HTTPAddr(), nomad.TLSConfig{})
		waitUntil(t, "the variable is read", h.describeState, func() bool {
			read, _, err := c.Variables().Read("app/db", nil)
			return err == nil && read.Items["password"] == secret && read.ModifyIndex == made.ModifyIndex
		})
		waitUntil(t, "all is encrypted with the new key", h.describeState, func() bool {
			keys, _, err := c.Keyring().List(nil)
			if err != nil || len(keys) != 2 {
				return false
			}
			return keys[0].State == nomad.RootKeyStateDeprecated || keys[1].State == nomad.RootKeyStateDeprecated
		})
		if bytes.Contains(mustSnapshot(t, h), []byte(secret)) || strings.Contains(h.describeState(), secret) {
			t.Errorf("the state of hub %s has the value in clear", h.cfg.Name)
		}
	}
	waitUntil(t, "the holder renews its lock with the new leader", rest[0].describeState, func() bool { return lock.Renew(t.Context()) == nil })
	if _, _, err := follower.Variables().Update(&nomad.Variable{Path: "app/lock", Items: nomad.VariableItems{"by": "other"}}, nil); err == nil {
		t.Fatal("a locked variable was changed by another")
	}
	if err := lock.Release(t.Context()); err != nil || errors.Is(err, nomad.ErrLockConflict) {
		t.Fatal(err)
	}
}

// TestVariablesAfterARestart: a hub that starts again decrypts what it stored.
func TestVariablesAfterARestart(t *testing.T) {
	cfg := config(t, "hub-1")
	cfg.Bootstrap = true
	first := mustStart(t, cfg)
	first.mustBeReady()
	if _, _, err := mustNomadClient(t, "http://"+first.HTTPAddr(), nomad.TLSConfig{}).Variables().Create(&nomad.Variable{Path: "a", Items: nomad.VariableItems{"k": "v"}}, nil); err != nil {
		t.Fatal(err)
	}
	first.stopHub()
	again := mustStart(t, cfg)
	again.mustBeReady()
	c := mustNomadClient(t, "http://"+again.HTTPAddr(), nomad.TLSConfig{})
	waitUntil(t, "the variable is read", again.describeState, func() bool {
		v, _, err := c.Variables().Read("a", nil)
		return err == nil && v.Items["k"] == "v"
	})
}
