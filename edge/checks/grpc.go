package checks

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"skerry/fleet"
)

// The health protocol of gRPC has one request with one text and one answer with one number, so it needs no library:
// https://github.com/grpc/grpc/blob/master/doc/health-checking.md

// healthPath is the method that a grpc check calls.
const healthPath = "/grpc.health.v1.Health/Check"

// maxGRPCAnswer bounds an answer of the health protocol, in bytes.
const maxGRPCAnswer = 1 << 10

// healthStatuses are the names of the statuses of the health protocol.
var healthStatuses = map[uint64]string{0: "UNKNOWN", healthServing: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}

const healthServing = 1

// probeGRPC asks a server by gRPC's health protocol whether it serves the check's service, or everything for "".
func (c *check) probeGRPC(ctx context.Context, dial Dial) (status, output string) {
	transport := &http.Transport{DialContext: dial.endingWith(ctx), DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10, Protocols: new(http.Protocols)}
	scheme := "http"
	if c.GRPCUseTLS {
		scheme = "https"
		transport.TLSClientConfig = &tls.Config{ServerName: c.TLSServerName, InsecureSkipVerify: c.TLSSkipVerify}
		transport.Protocols.SetHTTP2(true)
	} else {
		transport.Protocols.SetUnencryptedHTTP2(true)
	}
	defer transport.CloseIdleConnections()
	target := url.URL{Scheme: scheme, Host: c.address, Path: healthPath}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(encodeHealthRequest(c.GRPCService)))
	if err != nil {
		return Failure, displayText(err.Error())
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("TE", "trailers")
	res, err := transport.RoundTrip(req)
	if err != nil {
		return Failure, c.explainNoAnswer(ctx, err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxGRPCAnswer))
	if err != nil {
		return Failure, c.explainNoAnswer(ctx, err)
	}
	if res.StatusCode != http.StatusOK {
		return Failure, "answered " + res.Status
	}
	code, message := res.Trailer.Get("Grpc-Status"), res.Trailer.Get("Grpc-Message")
	if code == "" { // an answer without a message has them in its header
		code, message = res.Header.Get("Grpc-Status"), res.Header.Get("Grpc-Message")
	}
	if code != "0" {
		return Failure, displayText(fmt.Sprintf("answered gRPC status %q: %s", code, message))
	}
	serves, err := decodeHealthAnswer(answer)
	switch {
	case err != nil:
		return Failure, displayText(err.Error())
	case serves != healthServing:
		return Failure, fmt.Sprintf("answered %s (%d)", healthStatuses[serves], serves)
	}
	return Success, "answered SERVING"
}

// encodeHealthRequest returns the frame of a HealthCheckRequest.
func encodeHealthRequest(service string) []byte {
	var m []byte
	if service != "" {
		m = append(binary.AppendUvarint([]byte{1<<3 | 2}, uint64(len(service))), service...)
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(m))), m...)
}

// decodeHealthAnswer returns the status of the frame of a HealthCheckResponse. Fields that it does not know are
// skipped.
func decodeHealthAnswer(b []byte) (status uint64, err error) {
	malformed := errors.New("the answer is no HealthCheckResponse")
	if len(b) < 5 || b[0] != 0 || uint64(binary.BigEndian.Uint32(b[1:5])) != uint64(len(b)-5) {
		return 0, malformed
	}
	for b = b[5:]; len(b) > 0; {
		key, n := binary.Uvarint(b)
		if n <= 0 {
			return 0, malformed
		}
		b = b[n:]
		value, n := binary.Uvarint(b)
		if n <= 0 {
			return 0, malformed
		}
		b = b[n:]
		switch {
		case key == 1<<3:
			status = value
		case key&7 == 2 && value <= uint64(len(b)):
			b = b[value:]
		case key&7 != 0:
			return 0, malformed
		}
	}
	return status, nil
}

// needsAddress reports whether a check of a type asks a server at an address.
func needsAddress(checkType string) bool { return checkType != fleet.CheckScript }
