package journal

import (
	"context"

	"skerry/syncproto"
)

// Adopt journals allocations and their bodies that this journal has lost. Up to where it
// was told what is desired stays as it is.
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
