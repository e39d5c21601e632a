package broker

import (
	"context"
	"errors"
	"time"

	"skerry/fleet"
	"skerry/hub/rpc"
)

// The calls that workers on other hubs make.
const (
	methodDequeue rpc.Method[[]string, fleet.Delivery] = "eval.dequeue" // request: job types
	methodAck     rpc.Method[deliveryRef, struct{}]    = "eval.ack"
	methodNack    rpc.Method[deliveryRef, struct{}]    = "eval.nack"
)

const (
	// dequeueTimeout is how long one call waits on the leader for an evaluation. The caller waits
	// longer (dequeueCall): an evaluation that is delivered to a caller that has stopped waiting is
	// lost until the delivery's deadline.
	dequeueTimeout = time.Minute
	dequeueCall    = dequeueTimeout + rpc.CallTimeout
)

// deliveryRef identifies a delivery.
type deliveryRef struct {
	Eval  fleet.EvalID
	Token string
}

// Client calls the broker of the leader, which may be this hub.
type Client struct {
	broker *Broker
	peers  *rpc.Peers
}

// NewClient returns a client for a hub whose own broker is b.
func NewClient(b *Broker, p *rpc.Peers) *Client { return &Client{broker: b, peers: p} }

// ServeCalls registers the handlers for the calls of other hubs.
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

// dequeueForCall is DequeueFor bounded by dequeueTimeout. hub is "" for this hub.
func (b *Broker) dequeueForCall(ctx context.Context, hub fleet.HubID, types []string) (fleet.Delivery, error) {
	ctx, cancel := context.WithTimeout(ctx, dequeueTimeout)
	defer cancel()
	return b.DequeueFor(ctx, hub, types)
}

// Dequeue blocks until the leader delivers an evaluation of one of the types, or ctx ends.
func (c *Client) Dequeue(ctx context.Context, types []string) (fleet.Delivery, error) {
	for {
		d, err := c.dequeueOnce(ctx, types)
		// Only the one call has timed out; the worker waits on.
		if fleet.CodeOf(err) == fleet.CodeTimeout || errors.Is(err, context.DeadlineExceeded) {
			if ctx.Err() == nil {
				continue
			}
		}
		return d, err
	}
}

// dequeueOnce makes one call for an evaluation.
func (c *Client) dequeueOnce(ctx context.Context, types []string) (fleet.Delivery, error) {
	ctx, cancel := context.WithTimeout(ctx, dequeueCall)
	defer cancel()
	return methodDequeue.OnLeader(ctx, c.peers, types, func(ctx context.Context, types []string) (fleet.Delivery, error) {
		return c.broker.dequeueForCall(ctx, "", types)
	})
}

// Ack tells the leader's broker that the evaluation of a delivery is processed: see Broker.Ack.
func (c *Client) Ack(ctx context.Context, id fleet.EvalID, token string) error {
	return c.callWithRef(ctx, methodAck, id, token, c.broker.Ack)
}

// Nack tells the leader's broker that a delivery ends without a result: see Broker.Nack.
func (c *Client) Nack(ctx context.Context, id fleet.EvalID, token string) error {
	return c.callWithRef(ctx, methodNack, id, token, c.broker.Nack)
}

// callWithRef calls the method m on the leader with a reference to a delivery. If this hub leads, it calls the
// function local instead.
func (c *Client) callWithRef(ctx context.Context, m rpc.Method[deliveryRef, struct{}], id fleet.EvalID, token string, local func(fleet.EvalID, string) error) error {
	ctx, cancel := context.WithTimeout(ctx, rpc.CallTimeout)
	defer cancel()
	_, err := m.OnLeader(ctx, c.peers, deliveryRef{id, token}, func(context.Context, deliveryRef) (struct{}, error) {
		return struct{}{}, local(id, token)
	})
	return err
}
