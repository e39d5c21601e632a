package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

const (
	// variablesBytes is how many bytes of variables a request has, apart from the last one's.
	variablesBytes = 256 << 10
	// maxVariablePaths bounds the paths of a request that is complete. An edge that may read more is not told what was
	// deleted while it was away.
	maxVariablePaths = 4000
	// variablesTimeout bounds a request with variables: allocations wait for it.
	variablesTimeout = 10 * time.Second
)

// variableKey identifies a variable.
type variableKey struct{ namespace, path string }

func compareVariables(a, b variableKey) int {
	if c := strings.Compare(a.namespace, b.namespace); c != 0 {
		return c
	}
	return strings.Compare(a.path, b.path)
}

// variableSender sends an edge the variables that its allocations may read. Its owner is the goroutine of runSendLoop.
type variableSender struct {
	s       *session
	begun   bool                        // the edge knows which variables there are
	old     bool                        // the edge's release does not know variables
	sent    map[variableKey]fleet.Index // by ModifyIndex
	warned  string
	request func(ctx context.Context, req syncproto.Request) error
}

func newVariableSender(s *session) *variableSender {
	v := &variableSender{s: s, sent: map[variableKey]fleet.Index{}}
	v.request = func(ctx context.Context, req syncproto.Request) error {
		ctx, cancel := context.WithTimeout(ctx, variablesTimeout)
		defer cancel()
		out, err := openRequest(ctx, s.conn, req)
		if err != nil {
			return err
		}
		return out.Close()
	}
	return v
}

// sendChanges sends what has changed since the last call, and has watch watch what was read. It reports whether it has
// to be called again although nothing changes.
func (v *variableSender) sendChanges(ctx context.Context, watch *state.View) (retry bool) {
	if v.old || v.s.gw.cfg.Decrypt == nil {
		return false
	}
	err := v.trySendChanges(ctx, watch)
	switch {
	case err == nil:
		v.warned = ""
		return false
	case fleet.CodeOf(err) == fleet.CodeUnsupported:
		v.old = true
	case ctx.Err() != nil:
		return false
	}
	if text := err.Error(); text != v.warned {
		v.warned = text
		v.s.log.Warn("variables not delivered to the edge", "error", err)
	}
	return !v.old
}

func (v *variableSender) trySendChanges(ctx context.Context, watch *state.View) error {
	now := v.s.gw.cfg.State.View()
	wanted, namespaces := v.readableVariables(now, watch)
	if now.TableIndex("variables") == 0 {
		return nil // there was never a variable
	}
	if !v.begun && len(namespaces) > 0 {
		if err := v.sendPaths(ctx, wanted); err != nil {
			return err
		}
		v.begun = true
	}
	var batch []syncproto.DeliveredVariable
	var keys []variableKey
	size := 0
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		if err := v.request(ctx, syncproto.Request{Kind: syncproto.RequestVariables, Variables: batch}); err != nil {
			return err
		}
		for i, d := range batch {
			if v.sent[keys[i]] = d.ModifyIndex; d.Deleted {
				delete(v.sent, keys[i])
			}
		}
		batch, keys, size = nil, nil, 0
		return nil
	}
	var failed []error
	for _, k := range slices.SortedFunc(maps.Keys(wanted), compareVariables) {
		row := wanted[k]
		if v.sent[k] == row.ModifyIndex {
			continue
		}
		items, err := v.s.gw.cfg.Decrypt(row)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		encoded, err := syncproto.EncodeItems(items)
		if err != nil {
			return err
		}
		batch, keys = append(batch, syncproto.DeliveredVariable{Namespace: k.namespace, Path: k.path, ModifyIndex: row.ModifyIndex, Items: encoded}), append(keys, k)
		if size += len(encoded) + 256; size >= variablesBytes {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(v.sent), compareVariables) {
		if _, there := wanted[k]; !there && slices.Contains(namespaces[k.namespace], k.path) {
			batch, keys = append(batch, syncproto.DeliveredVariable{Namespace: k.namespace, Path: k.path, Deleted: true}), append(keys, k)
		} else if !there { // no allocation may read it any more: the edge forgets it itself
			delete(v.sent, k)
		}
	}
	if err := flush(); err != nil {
		return err
	}
	return errors.Join(failed...)
}

// sendPaths tells the edge the paths of all variables that it may have.
func (v *variableSender) sendPaths(ctx context.Context, wanted map[variableKey]*state.Variable) error {
	if len(wanted) > maxVariablePaths {
		return nil
	}
	all := make([]syncproto.DeliveredVariable, 0, len(wanted))
	for _, k := range slices.SortedFunc(maps.Keys(wanted), compareVariables) {
		all = append(all, syncproto.DeliveredVariable{Namespace: k.namespace, Path: k.path})
	}
	if err := v.request(ctx, syncproto.Request{Kind: syncproto.RequestVariables, Variables: all, Complete: true}); err != nil {
		return fmt.Errorf("tell the edge which variables there are: %w", err)
	}
	return nil
}

// readableVariables returns the variables that the allocations of the node may read, and the paths that they may read
// by namespace, also of variables that do not exist. It has watch watch the variables; those of further allocations
// come with a change of the node's desired state.
func (v *variableSender) readableVariables(now, watch *state.View) (wanted map[variableKey]*state.Variable, paths map[string][]string) {
	wanted, paths = map[variableKey]*state.Variable{}, map[string][]string{}
	for a := range now.AllocsByNode(v.s.node) {
		if a.DesiredStatus != fleet.DesiredRun || a.ClientTerminal() {
			continue
		}
		for _, path := range a.VariablePaths("") {
			if slices.Contains(paths[a.Namespace], path) {
				continue
			}
			paths[a.Namespace] = append(paths[a.Namespace], path)
			if row, ok := watch.Variable(a.Namespace, path); ok {
				wanted[variableKey{a.Namespace, path}] = row
			}
		}
	}
	return wanted, paths
}
