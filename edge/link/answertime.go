package link

import (
	"context"
	"sync/atomic"
	"time"

	"skerry/syncproto/transport"
)

// AnswerTime remembers how long hubs take to answer: the time until the first packet in the newest dial in which a
// hub was heard, and later the round trip of the session. Its zero value knows nothing yet. Its methods may be called
// from any goroutine.
type AnswerTime struct{ newest atomic.Int64 }

// setAnswerTime replaces what is remembered.
func (t *AnswerTime) setAnswerTime(d time.Duration) { t.newest.Store(int64(d)) }

// headStart returns how long a dialed hub may stay silent before the next one is dialed beside it.
func (t *AnswerTime) headStart() time.Duration { return headStart(time.Duration(t.newest.Load())) }

// TimedDialer dials from an endpoint, and remembers in Time how long each hub took to answer.
type TimedDialer struct {
	Endpoint *transport.Endpoint
	Time     *AnswerTime
}

// Dial is Endpoint.Dial. The time counts from here, so delays of this process are part of it.
func (d TimedDialer) Dial(ctx context.Context, cfg transport.DialConfig) (*transport.Conn, error) {
	began, heard := time.Now(), cfg.Heard
	cfg.Heard = func() {
		d.Time.setAnswerTime(time.Since(began))
		if heard != nil {
			heard()
		}
	}
	return d.Endpoint.Dial(ctx, cfg)
}
