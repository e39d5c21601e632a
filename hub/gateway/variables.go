package gateway

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"skerry/fleet"
	"skerry/hub/state"
	"skerry/syncproto"
)

// variablesBytes is how many bytes of variables a request has, apart from the last one's.
const variablesBytes = 256 << 10

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
	s        *session
	outcomes deliveryOutcomes
	sent     map[variableKey]fleet.Index // by ModifyIndex
	deleted  map[variableKey]fleet.Index // the deletions that the edge was told of
	request  func(ctx context.Context, req syncproto.Request) error
}

func newVariableSender(s *session) *variableSender {
	v := &variableSender{s: s, sent: map[variableKey]fleet.Index{}, deleted: map[variableKey]fleet.Index{}}
	v.request = func(ctx context.Context, req syncproto.Request) error {
		_, err := s.sendDelivery(ctx, req, 0)
		return err
	}
	return v
}

// sendChanges sends what has changed since the last call, and has watch watch what was read. It reports whether it has
// to be called again although nothing changes.
func (v *variableSender) sendChanges(ctx context.Context, watch *state.View) (retry bool) {
	if v.outcomes.unsupported || v.s.gw.cfg.Decrypt == nil {
		return false
	}
	err := v.trySendChanges(ctx, watch)
	if err == nil {
		v.outcomes.warned = ""
		return false
	}
	return v.outcomes.noteFailure(ctx, v.s.log, "variables not delivered to the edge", err)
}

// deliveryOutcomes are the outcomes of deliveries of one kind to an edge.
type deliveryOutcomes struct {
	unsupported bool   // the edge's release does not know them
	warned      string // the error that was logged last; "": the last delivery succeeded
}

// noteFailure logs a failed delivery, unless the one before failed likewise, and reports whether to try again.
func (o *deliveryOutcomes) noteFailure(ctx context.Context, log *slog.Logger, message string, err error) (retry bool) {
	if fleet.CodeOf(err) == fleet.CodeUnsupported {
		o.unsupported = true
	} else if ctx.Err() != nil {
		return false
	}
	if text := err.Error(); text != o.warned {
		o.warned = text
		log.Warn(message, "error", err)
	}
	return !o.unsupported
}

func (v *variableSender) trySendChanges(ctx context.Context, watch *state.View) error {
	now := v.s.gw.cfg.State.View()
	if now.TableIndex("variables") == 0 {
		return nil // there was never a variable
	}
	wanted, deleted := v.readableVariables(now, watch)
	maps.DeleteFunc(v.sent, func(k variableKey, _ fleet.Index) bool { return wanted[k] == nil })
	maps.DeleteFunc(v.deleted, func(k variableKey, _ fleet.Index) bool { return deleted[k] == nil })
	batch := variableBatch{sender: v}
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
		if err := batch.addVariable(ctx, syncproto.DeliveredVariable{Namespace: k.namespace, Path: k.path, ModifyIndex: row.ModifyIndex, ModifyTime: row.ModifyTime, Items: encoded}); err != nil {
			return err
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(deleted), compareVariables) {
		if v.deleted[k] == deleted[k].Index {
			continue
		}
		if err := batch.addVariable(ctx, syncproto.DeliveredVariable{Namespace: k.namespace, Path: k.path, ModifyIndex: deleted[k].Index, Deleted: true}); err != nil {
			return err
		}
	}
	if err := batch.sendBatch(ctx); err != nil {
		return err
	}
	return errors.Join(failed...)
}

// variableBatch collects variables for requests of bounded size.
type variableBatch struct {
	sender *variableSender
	list   []syncproto.DeliveredVariable
	size   int
}

// addVariable adds a variable, and sends the batch when it is large.
func (b *variableBatch) addVariable(ctx context.Context, d syncproto.DeliveredVariable) error {
	b.list = append(b.list, d)
	if b.size += len(d.Items) + 256; b.size < variablesBytes {
		return nil
	}
	return b.sendBatch(ctx)
}

// sendBatch sends the variables of the batch, if there are any.
func (b *variableBatch) sendBatch(ctx context.Context) error {
	if len(b.list) == 0 {
		return nil
	}
	if err := b.sender.request(ctx, syncproto.Request{Kind: syncproto.RequestVariables, Variables: b.list}); err != nil {
		return err
	}
	for _, d := range b.list {
		if k := (variableKey{d.Namespace, d.Path}); d.Deleted {
			b.sender.deleted[k] = d.ModifyIndex
		} else {
			b.sender.sent[k] = d.ModifyIndex
		}
	}
	b.list, b.size = nil, 0
	return nil
}

// readableVariables returns the variables that the allocations of the node may read, and those of them that were deleted.
// It has watch watch both; those of further allocations come with a change of the node's desired state. A variable of
// which the state knows nothing is in neither: a restore may have taken it away, and the edge keeps what it has.
func (v *variableSender) readableVariables(now, watch *state.View) (wanted map[variableKey]*state.Variable, deleted map[variableKey]*state.DeletedVariable) {
	wanted, deleted = map[variableKey]*state.Variable{}, map[variableKey]*state.DeletedVariable{}
	seen := map[variableKey]bool{}
	for a := range now.AllocsByNode(v.s.node) {
		if a.DesiredStatus != fleet.DesiredRun || a.ClientTerminal() {
			continue
		}
		for _, path := range a.VariablePaths("") {
			k := variableKey{a.Namespace, path}
			if seen[k] {
				continue
			}
			seen[k] = true
			if row, ok := watch.Variable(k.namespace, k.path); ok {
				wanted[k] = row
			} else if row, ok := watch.DeletedVariable(k.namespace, k.path); ok {
				deleted[k] = row
			}
		}
	}
	return wanted, deleted
}
