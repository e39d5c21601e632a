package edge_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skerry/edge"
	"skerry/edge/local"
	"skerry/fleet"
	"skerry/syncproto"
	"skerry/syncproto/identity"
	"skerry/syncproto/transport"
	"skerry/syncproto/transport/transporttest"
)

// enrolHub is a hub that answers enrolment requests, each once.
type enrolHub struct {
	addr   string
	answer func(syncproto.Enroll) syncproto.Message
}

func mustGate(t testing.TB, ca *authority, answer func(syncproto.Enroll) syncproto.Message) *enrolHub {
	t.Helper()
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	return mustGateOn(t, socket, ca, answer)
}

// mustGateOn starts an enrolHub that listens on a socket.
func mustGateOn(t testing.TB, socket net.PacketConn, ca *authority, answer func(syncproto.Enroll) syncproto.Message) *enrolHub {
	t.Helper()
	key, err := identity.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	der, err := ca.issueCertificate(fleet.RoleHub, "h1", &key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	server := &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{syncproto.ALPNEnroll},
		Certificates: []tls.Certificate{{Certificate: [][]byte{der, ca.cert.Raw}, PrivateKey: key}},
	}
	endpoint, err := transport.New(transport.Config{Conn: socket, TLS: func([]string) (*tls.Config, error) { return server, nil }})
	if err != nil {
		t.Fatal(err)
	}
	g := &enrolHub{addr: socket.LocalAddr().String(), answer: answer}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); g.answerEnrolments(ctx, endpoint) }()
	t.Cleanup(func() { cancel(); endpoint.Close(); <-ended })
	return g
}

func (g *enrolHub) answerEnrolments(ctx context.Context, e *transport.Endpoint) {
	for {
		conn, err := e.Accept(ctx)
		if err != nil {
			return
		}
		answerEnrolment(ctx, conn, g.answer)
	}
}

// answerEnrolment answers the request for a certificate on a connection, and waits for the end of the connection.
func answerEnrolment(ctx context.Context, conn *transport.Conn, answer func(syncproto.Enroll) syncproto.Message) {
	stream, err := conn.Accept(ctx)
	if err != nil {
		return
	}
	m, err := syncproto.NewReader(stream).Read()
	if req, ok := m.(syncproto.Enroll); ok && err == nil {
		_ = syncproto.NewWriter(stream).Write(answer(req))
	}
	_ = stream.CloseWrite()
	<-conn.Done()
}

// acceptEnrolment answers like a hub that accepts everybody.
func (a *authority) acceptEnrolment(t testing.TB, hubs ...string) func(syncproto.Enroll) syncproto.Message {
	return func(req syncproto.Enroll) syncproto.Message {
		csr, err := x509.ParseCertificateRequest(req.CSR)
		if err != nil {
			t.Error(err)
			return syncproto.Refused{Code: fleet.CodeInvalid}
		}
		cert, err := a.issueCertificate(req.Role, req.ID, csr.PublicKey)
		if err != nil {
			t.Error(err)
		}
		return syncproto.Enrolled{Cert: cert, CA: a.cert.Raw, Cluster: "c", Hubs: hubs}
	}
}

func unenrolledConfig(t testing.TB, token identity.Token, hubs ...string) edge.Config {
	t.Helper()
	cfg := config(t.TempDir(), &runnerRecorder{}, &logBuffer{})
	cfg.TokenFile, cfg.Hubs = filepath.Join(t.TempDir(), "token"), hubs
	mustWriteFile(t, cfg.TokenFile, []byte(token.String()+"\n"))
	return cfg
}

func TestEnrolOnceAndStartWithoutAHubAfterwards(t *testing.T) {
	ca := mustAuthority(t)
	g := mustGate(t, ca, ca.acceptEnrolment(t, nobody))
	cfg := unenrolledConfig(t, identity.NewToken(ca.cert.Raw), g.addr, nobody)
	l := mustStart(t, cfg)
	mustReachStatus(t, l, "enrolled", func(s local.Status) bool { return s.Enrolled })
	id := l.NodeID()
	if err := l.stop(); err != nil {
		t.Fatal(err)
	}
	cfg.TokenFile, cfg.Hubs = "", nil
	l = mustStart(t, cfg)
	mustRecover(t, l)
	mustReachStatus(t, l, "linked", func(s local.Status) bool { return len(s.Link.Hubs) == 1 && s.Link.Hubs[0] == nobody })
	if l.NodeID() != id {
		t.Fatalf("the node's id was %s and is %s", id, l.NodeID())
	}
}

func TestRefusalsAreFinal(t *testing.T) {
	ca, other := mustAuthority(t), mustAuthority(t)
	token := identity.NewToken(ca.cert.Raw)
	refuse := func(code fleet.Code) func(syncproto.Enroll) syncproto.Message {
		return func(syncproto.Enroll) syncproto.Message {
			return syncproto.Refused{Code: code, Message: "no", Hint: "ask for another"}
		}
	}
	for name, c := range map[string]struct {
		enrolHub *enrolHub
		code     fleet.Code
	}{
		"unknown token": {mustGate(t, ca, refuse(fleet.CodeTokenBad)), fleet.CodeTokenBad},
		"old token":     {mustGate(t, ca, refuse(fleet.CodeTokenExpiry)), fleet.CodeTokenExpiry},
		"other cluster": {mustGate(t, other, other.acceptEnrolment(t)), fleet.CodeCAMismatch},
	} {
		e, err := edge.Open(unenrolledConfig(t, token, c.enrolHub.addr))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		if err := e.Run(ctx); fleet.CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		if err := e.Close(); err != nil {
			t.Errorf("%s: close: %v", name, err)
		}
	}
}

func TestHubsThatDoNotAnswerAreTriedAgain(t *testing.T) {
	ca := mustAuthority(t)
	cfg := unenrolledConfig(t, identity.NewToken(ca.cert.Raw), "no-such-host.invalid:4647")
	l := mustStart(t, cfg)
	mustReachStatus(t, l, "said why it waits", func(s local.Status) bool {
		return s.Link.State == "enrolling" && strings.Contains(s.Link.LastError, "no-such-host.invalid")
	})
	if err := l.stop(); err != nil {
		t.Fatal(err)
	}
}

func TestAHubThatIsBusyIsAskedAgain(t *testing.T) {
	ca := mustAuthority(t)
	asked := 0
	g := mustGate(t, ca, func(req syncproto.Enroll) syncproto.Message {
		if asked++; asked == 1 {
			return syncproto.Refused{Code: fleet.CodeUnavailable, Message: "no leader"}
		}
		return ca.acceptEnrolment(t, nobody)(req)
	})
	l := mustStart(t, unenrolledConfig(t, identity.NewToken(ca.cert.Raw), g.addr))
	mustReachStatus(t, l, "enrolled", func(s local.Status) bool { return s.Enrolled })
}

// dialSocket is a socket that tells the address of each packet that is sent.
type dialSocket struct {
	net.PacketConn
	sent func(to string)
}

func (s dialSocket) WriteTo(b []byte, to net.Addr) (int, error) {
	s.sent(to.String())
	return s.PacketConn.WriteTo(b, to)
}

// The enrolment shows how slow the path is, so the first session's dial does not take a hub for dead that answers as
// late.
func TestLinkKnowsHowSlowTheEnrolmentWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const latency = 400 * time.Millisecond
		ca := mustAuthority(t)
		network := transporttest.New(t, latency)
		path := network.Path(t, "10.1.0.1", 7)
		mustGateOn(t, network.Listen(t, hubAddr), ca, ca.acceptEnrolment(t))
		cfg := unenrolledConfig(t, identity.NewToken(ca.cert.Raw), hubAddr, "10.0.0.2:4647")
		cfg.ListenLocal = func(string) (net.Listener, error) { return silentListener{make(chan struct{})}, nil }
		sockets, began := 0, make(chan time.Time, 2)
		cfg.ListenPacket = func(context.Context) (net.PacketConn, error) {
			var dialed sync.Map
			inFirstRound := sockets == 1 // the first socket is that of the enrolment
			sockets++
			return dialSocket{path.Socket(), func(to string) {
				if _, again := dialed.LoadOrStore(to, true); inFirstRound && !again {
					began <- time.Now()
				}
			}}, nil
		}
		mustStart(t, cfg)
		first := <-began
		if after := (<-began).Sub(first); after < 2*latency {
			t.Errorf("a second hub was dialed %s after the first one, whose answer takes %s", after, 2*latency)
		}
	})
}
