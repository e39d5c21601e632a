package artifacts

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"skerry/edge/store"
	"skerry/fleet"
)

const (
	dialTimeout   = 10 * time.Second
	headerTimeout = time.Minute // until the response headers
	stallTimeout  = time.Minute // between two bytes of the body
	maxRedirects  = 10
)

// errStalled ends a request whose body has stopped arriving.
var errStalled = fleet.Errorf(fleet.CodeTimeout, "nothing has arrived for %v", stallTimeout)

// getHTTP downloads a source over http. It repeats an interrupted request as long as each brings some bytes, and
// resumes the download if the server supports ranges and the content has not changed.
func (f *Fetcher) getHTTP(ctx context.Context, r *Request, d *store.Download) error {
	transport := newTransport(r.Insecure)
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: checkRedirect}
	for {
		before := d.Size()
		err := f.getOnce(ctx, client, r, d)
		if err == nil || ctx.Err() != nil || d.Size() <= before || isFinal(err) {
			return err
		}
		f.cfg.Log.Info("download of an artifact interrupted: resuming", "source", r.Source.String(), "bytes", d.Size(), "error", r.redactError(err))
	}
}

// newTransport makes the connections of one request. insecure checks no certificates.
func newTransport(insecure bool) *http.Transport {
	return &http.Transport{
		Proxy:       http.ProxyFromEnvironment,
		DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext, TLSHandshakeTimeout: dialTimeout,
		ResponseHeaderTimeout: headerTimeout, MaxResponseHeaderBytes: 64 << 10,
		DisableCompression: true, ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: insecure},
	}
}

// isFinal reports whether an error comes again, whoever asks.
func isFinal(err error) bool {
	switch fleet.CodeOf(err) {
	case fleet.CodeInvalid, fleet.CodeUnsupported, fleet.CodeForbidden:
		return true
	}
	return false
}

// checkRedirect bounds the number of redirects and refuses one from https to http.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) >= maxRedirects {
		return fmt.Errorf("the server redirects more than %d times", maxRedirects)
	}
	if via[len(via)-1].URL.Scheme == "https" && req.URL.Scheme != "https" {
		return fmt.Errorf("the server redirects from https to %s", req.URL.Scheme)
	}
	return nil
}

// getOnce makes one request for the missing bytes.
func (f *Fetcher) getOnce(ctx context.Context, client *http.Client, r *Request, d *store.Download) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req, err := f.newRequest(ctx, r, d)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("the server cannot be reached: %w", err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	switch {
	case resp.StatusCode == http.StatusPartialContent && d.Size() > 0 && startsAt(resp, d.Size()):
	case resp.StatusCode == http.StatusOK:
		if err := d.Restart(validatorOf(resp)); err != nil {
			return err
		}
	case resp.StatusCode == http.StatusPartialContent, resp.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		if err := d.Restart(""); err != nil {
			return err
		}
		return fmt.Errorf("the server cannot resume the download: it answers %s", resp.Status)
	case r.Source.from == fromS3:
		defer time.AfterFunc(stallTimeout, func() { cancel(errStalled) }).Stop()
		return r.Source.explainS3(resp)
	default:
		return fmt.Errorf("the server answers %s", resp.Status)
	}
	if size := d.Size() + max(resp.ContentLength, 0); size > f.cfg.Store.MaxBytes() {
		return f.errTooLargeToStore(size)
	}
	return copyBody(ctx, cancel, d, resp.Body)
}

// errTooLargeToStore is the error of a content that the store could never hold.
func (f *Fetcher) errTooLargeToStore(size int64) error {
	return fleet.Errorf(fleet.CodeInvalid, "it has %d MiB, and the edge's store at most %d MiB", size>>20, f.cfg.Store.MaxBytes()>>20).
		WithHint("start the edge with a larger --store-size")
}

// copyBody copies an answer into a download, and cancels ctx, which is that of the request, when nothing arrives.
func copyBody(ctx context.Context, cancel context.CancelCauseFunc, d *store.Download, body io.Reader) error {
	stall := time.AfterFunc(stallTimeout, func() { cancel(errStalled) })
	defer stall.Stop()
	err := copyAll(ctx, d, alarmReader{body, stall})
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	if err != nil {
		return fmt.Errorf("the download was interrupted after %d bytes: %w", d.Size(), err)
	}
	return nil
}

// newRequest makes the request for a source, from its first missing byte on.
func (f *Fetcher) newRequest(ctx context.Context, r *Request, d *store.Download) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.Source.url.String(), nil)
	if err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "it is no address: %w", err)
	}
	req.Header.Set("User-Agent", "skerry")
	for k, v := range r.Headers {
		if strings.EqualFold(k, "Host") {
			req.Host = v
			continue
		}
		req.Header.Set(k, v)
	}
	if r.Source.from == fromS3 {
		r.Source.signS3(req, f.cfg.Now())
	}
	if d.Size() > 0 && d.Validator() != "" {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", d.Size()))
		req.Header.Set("If-Range", d.Validator())
	}
	return req, nil
}

// startsAt reports whether a partial response begins at byte at.
func startsAt(resp *http.Response, at int64) bool {
	unit, bytes, _ := strings.Cut(resp.Header.Get("Content-Range"), " ")
	first, _, _ := strings.Cut(bytes, "-")
	n, err := strconv.ParseInt(first, 10, 64)
	return unit == "bytes" && err == nil && n == at
}

// validatorOf returns the validator for If-Range that identifies this version of the content, or "".
func validatorOf(resp *http.Response) string {
	if tag := resp.Header.Get("Etag"); tag != "" && !strings.HasPrefix(tag, "W/") && len(tag) < 1024 {
		return tag
	}
	if _, err := http.ParseTime(resp.Header.Get("Last-Modified")); err == nil {
		return resp.Header.Get("Last-Modified")
	}
	return ""
}

// alarmReader restarts a timer with each read that returns bytes.
type alarmReader struct {
	r     io.Reader
	alarm *time.Timer
}

// Read implements io.Reader.
func (a alarmReader) Read(p []byte) (int, error) {
	n, err := a.r.Read(p)
	if n > 0 {
		a.alarm.Reset(stallTimeout)
	}
	return n, err
}
