package audit

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"skerry/fleet"
	"skerry/internal/clienttls"
	"skerry/internal/redact"
)

// sendTimeout bounds one request to a collector, and one write to a syslog server.
const sendTimeout = 30 * time.Second

// Collector sends lines over HTTPS: each request is a POST with some lines (JSON), each with its end.
type Collector struct {
	url        string
	headerFile string // "": the requests have no header Authorization
	client     *http.Client
}

// NewCollector returns the collector at a URL. headerFile has the value of the header Authorization, and is read before each
// request; caFile has the authorities (PEM) of its certificate. Both may be "".
func NewCollector(address, headerFile, caFile string) (*Collector, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fleet.Errorf(fleet.CodeInvalid, "audit collector %q: not a URL", redact.Address(address)).WithHint("give it as https://HOST:PORT/PATH")
	}
	if u.Scheme == "http" && !clienttls.IsLoopback(u.Hostname()) {
		return nil, fleet.Errorf(fleet.CodeInvalid, "audit collector %s: it is not on this machine, and HTTP is not encrypted", redact.Address(address)).
			WithHint("give it as https://HOST:PORT/PATH")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if transport.TLSClientConfig, err = (clienttls.Files{Server: "the collector", CA: caFile}).Load(); err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "audit collector %s: %w", redact.Address(address), err)
	}
	return &Collector{address, headerFile, &http.Client{
		Transport: transport, Timeout: sendTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Name implements Destination.
func (*Collector) Name() string { return "collector" }

// Send implements Destination.
func (c *Collector) Send(ctx context.Context, lines [][]byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(bytes.Join(lines, nil)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	req.Header.Set("User-Agent", "skerry")
	var sent redact.Values // which the collector may repeat
	if c.headerFile != "" {
		value, err := os.ReadFile(c.headerFile)
		if err != nil {
			return fmt.Errorf("read the Authorization of the audit collector: %w", err)
		}
		req.Header.Set("Authorization", strings.TrimSpace(string(value)))
		sent = redact.NewValues(strings.Fields(string(value))...)
	}
	answer, err := c.client.Do(req)
	if err != nil {
		return fmt.Errorf("send %d entries to the audit collector: %w", len(lines), redact.Error(err))
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10)) // of use only in the error
	if answer.StatusCode/100 != 2 {
		return fleet.Errorf(fleet.CodeUnavailable, "send %d entries to the audit collector %s: it answered %s: %s", len(lines), redact.Address(c.url), answer.Status, sent.Text(string(bytes.TrimSpace(body))))
	}
	return nil
}
