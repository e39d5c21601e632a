package journal

import (
	"context"
	"reflect"

	"skerry/fleet"
)

// Link is the state that edge/link keeps across restarts of the agent. The zero value is that of an edge that
// has never had a session.
type Link struct {
	Session      uint64      `cbor:"1,keyasint"`            // number of the newest session that was begun
	Hubs         []string    `cbor:"2,keyasint,omitempty"`  // HOST:PORT of the hubs that a hub named
	Cluster      string      `cbor:"3,keyasint,omitempty"`  // id of the cluster that this edge belongs to
	Term         uint64      `cbor:"4,keyasint,omitempty"`  // Raft term that goes with Index
	Index        fleet.Index `cbor:"5,keyasint,omitempty"`  // newest index of the cluster that this edge has seen
	NodeHash     []byte      `cbor:"6,keyasint,omitempty"`  // hash of the node that the cluster has for this machine
	Disconnected bool        `cbor:"7,keyasint,omitempty"`  // a row records the loss of the link, and none its return
	Fenced       string      `cbor:"8,keyasint,omitempty"`  // why a hub refused this machine as a clone; "": none did
	WentBack     string      `cbor:"9,keyasint,omitempty"`  // how the cluster fell behind its own acknowledgements; "": it did not
	Rejoined     bool        `cbor:"10,keyasint,omitempty"` // the cluster has this edge back and waits for its history
}

// Link returns the value that PutLink stored. It reads memory only.
func (j *Journal) Link() Link {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.durable.link
}

// PutLink stores l if it differs from the stored value. The same commit appends the rows ts, and then the rows
// that more makes from the states after ts. more may be nil.
func (j *Journal) PutLink(ctx context.Context, l Link, more RowsOfStates, ts ...fleet.Transition) error {
	return j.submitOp(ctx, &op{write: func(b *batch) error {
		if !reflect.DeepEqual(b.durable.link, l) {
			if err := b.announceStep(StepLink); err != nil {
				return err
			}
			b.durable.link = l
			if err := b.db.putMeta(metaLink, l); err != nil {
				return err
			}
		}
		if err := b.recordTransitions(ts); err != nil || more == nil {
			return err
		}
		return b.recordTransitions(more(b.statesInBatch()))
	}})
}
