package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// maxResponseBytes bounds what is read of an answer, in bytes.
const maxResponseBytes = 256 << 20

// client speaks HTTP to one address over connections that dial makes.
type client struct {
	http *http.Client
	base string
}

func newClient(base string, dial func(ctx context.Context) (net.Conn, error)) *client {
	return &client{base: base, http: &http.Client{
		Timeout: 30 * time.Second,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
			// A process that was killed leaves connections that look alive.
			DisableKeepAlives: true,
		},
	}}
}

// callEndpoint sends in (nil: no body; a []byte goes as it is) and decodes the answer into out (nil: drops it; a
// *[]byte takes it as it is).
func (c *client) callEndpoint(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	switch raw := in.(type) {
	case nil:
	case []byte:
		body = bytes.NewReader(raw)
	default:
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode the body of %s %s: %w", method, path, err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxResponseBytes))
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode >= 300 {
		return &StatusError{Method: method, Path: path, Status: resp.StatusCode, Body: string(b)}
	}
	switch raw := out.(type) {
	case nil:
		return nil
	case *[]byte:
		*raw = b
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("decode the answer of %s %s: %w", method, path, err)
	}
	return nil
}

// StatusError is an answer that is no success.
type StatusError struct {
	Method, Path string
	Status       int
	Body         string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%s %s: HTTP %d: %s", e.Method, e.Path, e.Status, e.Body)
}
