package broker

import (
	"context"
	"errors"
	"time"

	"skerry/fleet"
	"skerry/hub/rpc"
)

// The calls of workers on other hubs.
const (
	methodDequeue rpc.Method[[]string, fleet.Delivery] = "eval.dequeue" // job types
	methodAck     rpc.Method[deliveryRef, struct{}]    = "eval.ack"
	methodNack    rpc.Method[deliveryRef, struct{}]    = "eval.nack"
)

const (
	// dequeueTimeout is how long one call waits at the leader for an evaluation. Who calls
	// from elsewhere listens for longer, dequeueCall: what is handed out when it listens
	// no more stays with it until the delivery's deadline, and nobody looks at it.
	dequeueTimeout = time.Minute
	dequeueCall    = dequeueTimeout + rpc.CallTimeout
)

// deliveryRef names a delivery of an evaluation.
type deliveryRef struct {
	Eval  fleet.EvalID
	Token string
}

// Client reaches the broker of the hub that leads, which may be this one.
type Client struct {
	broker *Broker
	peers  *rpc.Peers
}

// NewClient returns a client whose hub has the broker b.
func NewClient(b *Broker, p *rpc.Peers) *Client { return &Client{broker: b, peers: p} }

// ServeCalls registers what the clients of other hubs call.
func (b *Broker) ServeCalls(p *rpc.Peers) {
	methodDequeue.Handle(p, func(ctx context.Context, from string, types []string) (fleet.Delivery, error) {
		return b.dequeueForCall(ctx, fleet.HubID(from), types)
	})
	methodAck.Handle(p, func(_ context.Context, _ string, d deliveryRef) (struct{}, error) {
		return struct{}{}, b.Ack(d.Eval, d.Token)
	})
	methodNack.Handle(p, func(_ context.Context, _ string, d deliveryRef) (struct{}, error) {
		return struct{}{}, b.Nack(d.Eval, d.Token)
	})
}

// dequeueForCall waits for an evaluation for as long as one call may; hub "" is this one.
func (b *Broker) dequeueForCall(ctx context.Context, hub fleet.HubID, types []string) (fleet.Delivery, error) {
	ctx, cancel := context.WithTimeout(ctx, dequeueTimeout)
	defer cancel()
	return b.DequeueFor(ctx, hub, types)
}

// Dequeue waits until there is an evaluation of one of the types.
func (c *Client) Dequeue(ctx context.Context, types []string) (fleet.Delivery, error) {
	for {
		d, err := c.dequeueOnce(ctx, types)
		// One call's wait is over, not the worker's.
		if fleet.CodeOf(err) == fleet.CodeTimeout || errors.Is(err, context.DeadlineExceeded) {
			if ctx.Err() == nil {
				continue
			}
		}
		return d, err
	}
}

func (c *Client) dequeueOnce(ctx context.Context, types []string) (fleet.Delivery, error) {
	ctx, cancel := context.WithTimeout(ctx, dequeueCall)
	defer cancel()
	return methodDequeue.OnLeader(ctx, c.peers, types, func(ctx context.Context, types []string) (fleet.Delivery, error) {
		return c.broker.dequeueForCall(ctx, "", types)
	})
}

// Ack says that the evaluation of a delivery is done.
func (c *Client) Ack(ctx context.Context, id fleet.EvalID, token string) error {
	return c.callWithRef(ctx, methodAck, id, token, c.broker.Ack)
}

// Nack gives the evaluation of a delivery back.
func (c *Client) Nack(ctx context.Context, id fleet.EvalID, token string) error {
	return c.callWithRef(ctx, methodNack, id, token, c.broker.Nack)
}

func (c *Client) callWithRef(ctx context.Context, m rpc.Method[deliveryRef, struct{}], id fleet.EvalID, token string, local func(fleet.EvalID, string) error) error {
	ctx, cancel := context.WithTimeout(ctx, rpc.CallTimeout)
	defer cancel()
	_, err := m.OnLeader(ctx, c.peers, deliveryRef{id, token}, func(context.Context, deliveryRef) (struct{}, error) {
		return struct{}{}, local(id, token)
	})
	return err
}
