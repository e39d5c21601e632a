package names_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"skerry/edge/names"
	"skerry/fleet"
)

// catalogue has services by NAMESPACE/NAME.
type catalogue struct {
	mu    sync.Mutex
	found map[string][]fleet.ServiceRegistration
	fail  error
}

func (c *catalogue) Services(_ context.Context, namespace, name string) ([]fleet.ServiceRegistration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.found[namespace+"/"+name]), c.fail
}

// mustServe runs a server until the test ends.
func mustServe(tb testing.TB, c *catalogue) *names.Server {
	tb.Helper()
	s, err := names.Listen("127.0.0.1:0", c, slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Error(err)
		}
	})
	return s
}

// mustAsk sends a query and returns the answer. network is "udp" or "tcp".
func mustAsk(tb testing.TB, s *names.Server, network, name string, typ dnsmessage.Type) dnsmessage.Message {
	tb.Helper()
	q := dnsmessage.Message{Header: dnsmessage.Header{ID: 7}, Questions: []dnsmessage.Question{
		{Name: dnsmessage.MustNewName(name), Type: typ, Class: dnsmessage.ClassINET},
	}}
	b, err := q.Pack()
	if err != nil {
		tb.Fatal(err)
	}
	conn, err := net.Dial(network, s.Addr())
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	answer := make([]byte, 64<<10)
	if network == "tcp" {
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)); err != nil {
			tb.Fatal(err)
		}
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			tb.Fatal(err)
		}
		answer = answer[:binary.BigEndian.Uint16(size[:])]
		if _, err := io.ReadFull(conn, answer); err != nil {
			tb.Fatal(err)
		}
	} else {
		if _, err := conn.Write(b); err != nil {
			tb.Fatal(err)
		}
		n, err := conn.Read(answer)
		if err != nil {
			tb.Fatal(err)
		}
		answer = answer[:n]
	}
	var m dnsmessage.Message
	if err := m.Unpack(answer); err != nil || m.ID != 7 || !m.Response {
		tb.Fatalf("%s %s: %+v, %v", name, typ, m, err)
	}
	return m
}

// recordsOf returns the records of a section, sorted.
func recordsOf(section []dnsmessage.Resource) string {
	var out []string
	for _, r := range section {
		switch b := r.Body.(type) {
		case *dnsmessage.AResource:
			out = append(out, "A "+net.IP(b.A[:]).String())
		case *dnsmessage.AAAAResource:
			out = append(out, "AAAA "+net.IP(b.AAAA[:]).String())
		case *dnsmessage.SRVResource:
			out = append(out, fmt.Sprintf("SRV %d %s", b.Port, b.Target))
		}
	}
	slices.Sort(out)
	return fmt.Sprint(out)
}

func TestAnswers(t *testing.T) {
	c := &catalogue{found: map[string][]fleet.ServiceRegistration{
		"default/till": {{Address: "192.0.2.7", Port: 8080}, {Address: "192.0.2.7", Port: 8081}, {Address: "2001:db8::1", Port: 8080}, {Address: "shop.example", Port: 80}},
		"ops/till":     {{Address: "192.0.2.9", Port: 80}},
	}}
	s := mustServe(t, c)
	for _, tc := range []struct {
		name    string
		typ     dnsmessage.Type
		code    dnsmessage.RCode
		answers string
		more    string
	}{
		{"till.service.skerry.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, "[A 192.0.2.7]", "[]"},
		{"TILL.Service.Skerry.", dnsmessage.TypeAAAA, dnsmessage.RCodeSuccess, "[AAAA 2001:db8::1]", "[]"},
		{"till.service.skerry.", dnsmessage.TypeSRV, dnsmessage.RCodeSuccess,
			"[SRV 8080 20010db8000000000000000000000001.addr.skerry. SRV 8080 c0000207.addr.skerry. SRV 8081 c0000207.addr.skerry.]", "[A 192.0.2.7 AAAA 2001:db8::1]"},
		{"c0000207.addr.skerry.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, "[A 192.0.2.7]", "[]"},
		{"c0000207.addr.skerry.", dnsmessage.TypeAAAA, dnsmessage.RCodeSuccess, "[]", "[]"},
		{"till.service.skerry.", dnsmessage.TypeMX, dnsmessage.RCodeSuccess, "[]", "[]"},
		{"till.ops.service.skerry.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, "[A 192.0.2.9]", "[]"},
		{"nobody.service.skerry.", dnsmessage.TypeA, dnsmessage.RCodeNameError, "[]", "[]"},
		{"xyz.addr.skerry.", dnsmessage.TypeA, dnsmessage.RCodeNameError, "[]", "[]"},
		{"skerry.example.", dnsmessage.TypeA, dnsmessage.RCodeRefused, "[]", "[]"},
	} {
		for _, network := range []string{"udp", "tcp"} {
			m := mustAsk(t, s, network, tc.name, tc.typ)
			if m.RCode != tc.code || recordsOf(m.Answers) != tc.answers || recordsOf(m.Additionals) != tc.more {
				t.Errorf("%s %s %s: %s %s %s", network, tc.name, tc.typ, m.RCode, recordsOf(m.Answers), recordsOf(m.Additionals))
			}
		}
	}
	c.mu.Lock()
	c.fail = errors.New("the journal is closed")
	c.mu.Unlock()
	if m := mustAsk(t, s, "udp", "till.service.skerry.", dnsmessage.TypeA); m.RCode != dnsmessage.RCodeServerFailure {
		t.Errorf("without a journal: %s", m.RCode)
	}
}

// A long answer is cut in a datagram, which says so, and whole in a connection.
func TestLongAnswers(t *testing.T) {
	c := &catalogue{found: map[string][]fleet.ServiceRegistration{}}
	for i := range 60 {
		c.found["default/till"] = append(c.found["default/till"], fleet.ServiceRegistration{Address: fmt.Sprintf("192.0.2.%d", i+1), Port: 80})
	}
	s := mustServe(t, c)
	if m := mustAsk(t, s, "udp", "till.service.skerry.", dnsmessage.TypeA); !m.Truncated || len(m.Answers) == 0 || len(m.Answers) > 30 {
		t.Errorf("by a datagram: %d answers, truncated %t", len(m.Answers), m.Truncated)
	}
	if m := mustAsk(t, s, "tcp", "till.service.skerry.", dnsmessage.TypeA); m.Truncated || len(m.Answers) != 60 {
		t.Errorf("by a connection: %d answers, truncated %t", len(m.Answers), m.Truncated)
	}
}

// FuzzQueries sends any packet: the server goes on.
func FuzzQueries(f *testing.F) {
	s := mustServe(f, &catalogue{found: map[string][]fleet.ServiceRegistration{"default/till": {{Address: "192.0.2.7", Port: 8080}}}})
	f.Add([]byte{})
	f.Add([]byte("\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04till\x07service\x06skerry\x00\x00\x01\x00\x01"))
	f.Add([]byte("\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01"))
	f.Fuzz(func(t *testing.T, query []byte) {
		if len(query) > 4<<10 {
			return
		}
		if answer := names.AnswerQuery(s, query); len(answer) > 512 {
			t.Errorf("an answer of %d bytes", len(answer))
		}
	})
}
