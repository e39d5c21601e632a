package audit_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"skerry/hub/audit"
)

var twoLines = [][]byte{[]byte(`{"Seq":1}` + "\n"), []byte(`{"Seq":2}` + "\n")}

func mustWrite(tb testing.TB, name, text string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// mustServeCollector serves HTTPS, and returns a collector there and the file of its Authorization.
func mustServeCollector(tb testing.TB, answer http.HandlerFunc) (*audit.Collector, string) {
	tb.Helper()
	server := httptest.NewTLSServer(answer)
	tb.Cleanup(server.Close)
	ca := mustWrite(tb, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	header := mustWrite(tb, "header", "Bearer one\n")
	c, err := audit.NewCollector(server.URL+"/in", header, ca)
	if err != nil {
		tb.Fatal(err)
	}
	return c, header
}

func TestCollectorGetsLines(t *testing.T) {
	var got []string
	c, header := mustServeCollector(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = append(got, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization")+" "+r.Header.Get("Content-Type")+" "+string(body))
	})
	for _, value := range []string{"Bearer one", "Splunk two"} {
		if err := os.WriteFile(header, []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := c.Send(t.Context(), twoLines); err != nil {
			t.Fatal(err)
		}
		want := "POST /in " + value + " application/x-ndjson " + `{"Seq":1}` + "\n" + `{"Seq":2}` + "\n"
		if last := got[len(got)-1]; last != want {
			t.Errorf("got %q, want %q", last, want)
		}
	}
}

func TestCollectorThatRefuses(t *testing.T) {
	for _, status := range []int{http.StatusFound, http.StatusForbidden, http.StatusServiceUnavailable} {
		asked := 0
		c, _ := mustServeCollector(t, func(w http.ResponseWriter, _ *http.Request) {
			asked++
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
			fmt.Fprint(w, "no room")
		})
		err := c.Send(t.Context(), twoLines)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprint(status)) || !strings.Contains(err.Error(), "no room") {
			t.Errorf("%d: %v", status, err)
		}
		if asked != 1 {
			t.Errorf("%d: %d requests, want one", status, asked)
		}
	}
}

// TestErrorsOfCollectorsHaveNoSecrets: neither a collector that repeats what it was sent nor one that is gone has the error tell a credential.
func TestErrorsOfCollectorsHaveNoSecrets(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "wrong: "+r.Header.Get("Authorization"), http.StatusForbidden)
	}))
	c, err := audit.NewCollector("http://user:marked@"+strings.TrimPrefix(server.URL, "http://")+"/in?token=marked", mustWrite(t, "header", "Bearer marked/2\n"), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"403 Forbidden: wrong: ", `Post "http://…@127.0.0.1:`} {
		if err := c.Send(t.Context(), twoLines); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "marked") {
			t.Errorf("%v, want %q", err, want)
		}
		server.Close()
	}
}

func TestDestinationsThatAreRefused(t *testing.T) {
	for address, want := range map[string]string{
		"collector.example/in": "not a URL", "ftp://collector.example": "not a URL", "http://collector.example/in": "not encrypted", "https://": "not a URL",
	} {
		if _, err := audit.NewCollector(address, "", ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("collector %q: %v, want %q", address, err, want)
		}
	}
	for _, address := range []string{"ftp://user:marked@collector.example", "http://marked@collector.example/in?token=marked", "https://user:pa/marked@x"} {
		if _, err := audit.NewCollector(address, "", ""); err == nil || strings.Contains(err.Error(), "marked") {
			t.Errorf("collector %q: %v", address, err)
		}
	}
	if _, err := audit.NewCollector("https://collector.example", "", mustWrite(t, "ca.pem", "none")); err == nil || !strings.Contains(err.Error(), "no certificate") {
		t.Errorf("authorities: %v", err)
	}
	for _, address := range []string{"", "log.example:514", "tcp://log.example", "http://log.example:1", "tcp://log.example:514/x"} {
		if _, err := audit.NewSyslog(address, "", "hub1"); err == nil || !strings.Contains(err.Error(), "not an address") {
			t.Errorf("syslog server %q: %v", address, err)
		}
	}
}

const message = `<85>1 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z hub1 skerry-hub \d+ audit - \{"Seq":%d\}`

// mustReadMessage reads a message with its length before it, and checks it.
func mustReadMessage(tb testing.TB, r *bufio.Reader, seq int) {
	tb.Helper()
	var size int
	if _, err := fmt.Fscanf(r, "%d ", &size); err != nil {
		tb.Fatal(err)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(r, text); err != nil {
		tb.Fatal(err)
	}
	if !regexp.MustCompile("^" + fmt.Sprintf(message, seq) + "$").Match(text) {
		tb.Errorf("message: %s", text)
	}
}

// A server gets the messages over one connection, and over another one where it has begun anew.
func TestSyslogOverStreams(t *testing.T) {
	certified := httptest.NewTLSServer(nil)
	defer certified.Close()
	ca := mustWrite(t, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certified.Certificate().Raw})))
	for _, network := range []string{"tcp", "tls"} {
		t.Run(network, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			if network == "tls" {
				listener = tls.NewListener(listener, &tls.Config{Certificates: certified.TLS.Certificates})
			}
			defer listener.Close()
			s, err := audit.NewSyslog(network+"://"+listener.Addr().String(), ca, "hub1")
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for range 2 {
				conns := make(chan net.Conn, 1)
				go func() { // a handshake needs both sides
					conn, err := listener.Accept()
					if c, ok := conn.(*tls.Conn); ok && err == nil {
						err = c.HandshakeContext(context.Background())
					}
					if err != nil {
						t.Error(err)
					}
					conns <- conn
				}()
				if err := s.Send(t.Context(), twoLines); err != nil {
					t.Fatal(err)
				}
				conn := <-conns
				r := bufio.NewReader(conn)
				mustReadMessage(t, r, 1)
				mustReadMessage(t, r, 2)
				if err := s.Send(t.Context(), twoLines[:1]); err != nil {
					t.Fatal(err)
				}
				mustReadMessage(t, r, 1)
				conn.Close()
			}
			listener.Close()
			if err := s.Send(t.Context(), twoLines); err == nil {
				t.Error("sent to nobody")
			}
		})
	}
}

// A datagram has one message, in the form that its reader knows, and is cut where it is too long.
func TestSyslogByDatagrams(t *testing.T) {
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	socket := filepath.Join(t.TempDir(), "log")
	local, err := net.ListenPacket("unixgram", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	remote, err := audit.NewSyslog("udp://"+udp.LocalAddr().String(), "", "hub1")
	if err != nil {
		t.Fatal(err)
	}
	long := append([]byte(`{"Object":"`), []byte(strings.Repeat("x", 20_000))...)
	for _, c := range []struct {
		server *audit.Syslog
		at     net.PacketConn
		form   string
	}{
		{remote, udp, fmt.Sprintf(message, 1)},
		{audit.LocalSyslog(socket), local, `<85>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d skerry-hub\[\d+\]: \{"Seq":1\}`},
	} {
		defer c.server.Close()
		if err := c.server.Send(t.Context(), [][]byte{twoLines[0], long}); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 64<<10)
		for i := range 2 {
			if err := c.at.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			n, _, err := c.at.ReadFrom(buf)
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 && !regexp.MustCompile("^"+c.form+"$").Match(buf[:n]) {
				t.Errorf("message: %s", buf[:n])
			}
			if i == 1 && n != 8<<10 {
				t.Errorf("a long message has %d bytes", n)
			}
		}
	}
}
