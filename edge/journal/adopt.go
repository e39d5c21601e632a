package journal

import (
	"context"

	"skerry/syncproto"
)

// Adopt journals allocations, and their job bodies, that the journal has lost. The index of the newest
// delivery stays.
func (j *Journal) Adopt(ctx context.Context, d syncproto.Desired) error {
	return j.submitOp(ctx, &op{write: func(b *batch) error {
		var last delivery
		if err := b.db.readMeta(metaDesired, &last); err != nil {
			return err
		}
		d.Index, d.Cluster, d.Term = last.Index, last.Cluster, last.Term
		_, err := b.putDesired(d)
		return err
	}})
}
