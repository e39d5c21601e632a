package journal

import (
	"context"

	"skerry/syncproto"
)

// Adopt journals the allocations and job bodies of d, which the journal has lost and which still run on this
// machine. It ignores d's Index, Cluster and Term: the newest delivery of a hub stays the newest.
func (j *Journal) Adopt(ctx context.Context, d syncproto.Desired) error {
	return j.submitOp(ctx, &op{write: func(b *batch) error {
		var last delivery
		if err := b.db.readMeta(metaDesired, &last); err != nil {
			return err
		}
		d.Index, d.Cluster, d.Term = last.Index, last.Cluster, last.Term
		_, err := b.putDelivery(d)
		return err
	}})
}
