package local

import (
	"io"
	"net/http"
)

// ReadExecFrames reads frames until there are no more, and returns how many there were and why it ended.
func ReadExecFrames(r io.Reader) (n int, err error) {
	buf := make([]byte, maxExecFrame)
	for ; ; n++ {
		if _, _, err := readExecFrame(r, buf); err != nil {
			return n, err
		}
	}
}

// WithTransport returns a Client that sends its requests with t instead of to the socket.
func (c *Client) WithTransport(t http.RoundTripper) *Client {
	return &Client{socket: c.socket, siteCode: c.siteCode, http: &http.Client{Transport: t}}
}
