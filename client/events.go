package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"skerry/api"
	"skerry/fleet"
)

// resumePause is the time between two attempts to resume an event stream.
const resumePause = time.Second

// Events calls each with every batch of events behind an index (0: from the oldest that the hub
// keeps), until ctx ends or each returns an error. Topics are like "Job" or "Job:shop"; none is all.
// A broken stream is resumed behind the last batch. Events that are no longer kept are an error.
func (c *Client) Events(ctx context.Context, after fleet.Index, topics []string, each func(api.EventBatch) error) error {
	for {
		err := c.readEvents(ctx, &after, topics, each)
		if err != nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(resumePause):
		}
	}
}

// readEvents reads one stream. nil: it broke and can be resumed.
func (c *Client) readEvents(ctx context.Context, after *fleet.Index, topics []string, each func(api.EventBatch) error) error {
	q := url.Values{"topic": topics}
	if *after > 0 {
		q.Set("after", strconv.FormatUint(uint64(*after), 10))
	}
	stream, err := c.openStream(ctx, "/v1/event/stream", q)
	switch code := StatusOf(err); {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && (code == 0 || code >= 500):
		return nil
	case err != nil:
		return err
	}
	defer stream.Close()
	for lines := json.NewDecoder(stream); ; {
		var b api.EventBatch
		if err := lines.Decode(&b); err != nil {
			return ctx.Err()
		}
		switch {
		case b.Error != "":
			return fmt.Errorf("read events after %d: %s", *after, b.Error)
		case len(b.Events) == 0:
			continue // a heartbeat
		}
		if err := each(b); err != nil {
			return err
		}
		*after = b.Index
	}
}
