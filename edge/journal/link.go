package journal

import (
	"context"
	"reflect"

	"skerry/fleet"
)

// Link is what edge/link remembers when the agent restarts.
type Link struct {
	Session      uint64      `cbor:"1,keyasint"`
	Hubs         []string    `cbor:"2,keyasint,omitempty"`
	Cluster      string      `cbor:"3,keyasint,omitempty"`
	Term         uint64      `cbor:"4,keyasint,omitempty"`
	Index        fleet.Index `cbor:"5,keyasint,omitempty"`
	NodeHash     []byte      `cbor:"6,keyasint,omitempty"` // description that the cluster has
	Disconnected bool        `cbor:"7,keyasint,omitempty"`
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

// PutLink stores l, if it differs, together with the rows ts and with the rows that more makes from the states
// after ts. more may be nil.
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
		return b.recordTransitions(more(b.everyState()))
	}})
}
