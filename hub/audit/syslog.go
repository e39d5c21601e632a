package audit

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	"skerry/fleet"
	"skerry/internal/clienttls"
)

// Syslog sends lines to a syslog server: one message each, with the line as its text.
type Syslog struct {
	network, address string
	tls              *tls.Config // of network "tls"
	host             string      // name of this machine in messages
	conn             net.Conn    // nil: not connected
}

const (
	// localSyslog is the socket of the machine's own syslog server.
	localSyslog = "/dev/log"
	// closedAfter is the time in which an end of a connection is looked for before it is used again.
	closedAfter = time.Millisecond
)

// NewSyslog returns the server at an address: "local", tls://HOST:PORT, tcp://HOST:PORT or udp://HOST:PORT. caFile has the
// authorities (PEM) of its certificate for tls, "": those of the machine.
func NewSyslog(address, caFile, host string) (*Syslog, error) {
	s := &Syslog{network: "unixgram", address: localSyslog, host: host}
	if address == "local" {
		return s, nil
	}
	u, err := url.Parse(address)
	if err == nil {
		s.network, s.address = u.Scheme, u.Host
		_, _, err = net.SplitHostPort(u.Host)
	}
	if err != nil || u.Path != "" || s.network != "tls" && s.network != "tcp" && s.network != "udp" {
		return nil, fleet.Errorf(fleet.CodeInvalid, "syslog server %q: not an address of one", address).
			WithHint("give local, tls://HOST:PORT, tcp://HOST:PORT or udp://HOST:PORT")
	}
	if s.tls, err = (clienttls.Files{Server: "the syslog server", CA: caFile}).Load(); err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "syslog server %s: %w", address, err)
	}
	return s, nil
}

// Name implements Destination.
func (*Syslog) Name() string { return "syslog" }

// Send implements Destination. A server acknowledges nothing: what is written counts as taken.
func (s *Syslog) Send(ctx context.Context, lines [][]byte) error {
	err := s.connectServer(ctx)
	for i := 0; err == nil && i < len(lines); i++ {
		_ = s.conn.SetWriteDeadline(time.Now().Add(sendTimeout)) // a connection that is closed says so at Write
		_, err = s.conn.Write(s.frameMessage(bytes.TrimSuffix(lines[i], []byte{'\n'})))
	}
	if err != nil {
		s.Close()
		return fmt.Errorf("send %d entries to the syslog server %s: %w", len(lines), s.address, err)
	}
	return nil
}

// connectServer connects to the server, unless a connection is there. A server that has ended has closed its own.
func (s *Syslog) connectServer(ctx context.Context) (err error) {
	if s.conn != nil {
		_ = s.conn.SetReadDeadline(time.Now().Add(closedAfter)) // a connection that is closed says so at Read
		if _, err := s.conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		s.Close()
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	if s.network == "tls" {
		s.conn, err = (&tls.Dialer{Config: s.tls}).DialContext(ctx, "tcp", s.address)
	} else {
		s.conn, err = (&net.Dialer{}).DialContext(ctx, s.network, s.address)
	}
	return err
}

// Close closes the connection. A later Send connects again.
func (s *Syslog) Close() {
	if s.conn != nil {
		s.conn.Close() // what it took is written
		s.conn = nil
	}
}

const (
	// priority is that of the facility authpriv (10) and the severity notice (5).
	priority = 10*8 + 5
	// maxDatagram is as much of a message as a datagram has; a longer one is cut.
	maxDatagram = 8 << 10
)

// frameMessage returns a line as a message in the form of RFC 5424, or in that of RFC 3164 for the machine's own server, which
// knows no other. On a stream its length is before it (RFC 6587).
func (s *Syslog) frameMessage(line []byte) []byte {
	now := time.Now()
	if s.network == "unixgram" {
		return cut(fmt.Appendf(nil, "<%d>%s skerry-hub[%d]: %s", priority, now.Format(time.Stamp), os.Getpid(), line))
	}
	message := fmt.Appendf(nil, "<%d>1 %s %s skerry-hub %d audit - %s", priority, now.UTC().Format("2006-01-02T15:04:05.000000Z"), s.host, os.Getpid(), line)
	if s.network == "udp" {
		return cut(message)
	}
	return append(fmt.Appendf(nil, "%d ", len(message)), message...)
}

// cut returns as much of a message as a datagram has.
func cut(message []byte) []byte { return message[:min(len(message), maxDatagram)] }
