package names

import (
	"context"
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"skerry/fleet"
)

// Domains that the server answers for.
const (
	serviceDomain = ".service.skerry."
	addressDomain = ".addr.skerry."
	ownDomain     = ".skerry."
)

// recordTTL is how long clients may keep an answer, in seconds: a service may end at any time.
const recordTTL = 1

// answerQuery returns the answer to a query, of at most limit bytes; nil: the bytes are no query.
func (s *Server) answerQuery(ctx context.Context, query []byte, limit int) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil || h.Response {
		return nil
	}
	reply := dnsmessage.Message{Header: dnsmessage.Header{ID: h.ID, Response: true, OpCode: h.OpCode, RecursionDesired: h.RecursionDesired}}
	q, err := p.Question()
	switch {
	case err != nil:
		reply.RCode = dnsmessage.RCodeFormatError
	case h.OpCode != 0:
		reply.RCode = dnsmessage.RCodeNotImplemented
	default:
		reply.Questions = []dnsmessage.Question{q}
		s.answerQuestion(ctx, q, &reply)
	}
	for {
		b, err := reply.Pack()
		if err == nil && len(b) <= limit {
			return b
		}
		if err != nil || len(reply.Answers) == 0 {
			return nil
		}
		reply.Truncated = true
		reply.Answers, reply.Additionals = reply.Answers[:len(reply.Answers)/2], nil
	}
}

// answerQuestion adds the answers to a question to a reply, or says why there is none.
func (s *Server) answerQuestion(ctx context.Context, q dnsmessage.Question, reply *dnsmessage.Message) {
	name := strings.ToLower(q.Name.String())
	reply.Authoritative = strings.HasSuffix(name, ownDomain)
	switch {
	case !reply.Authoritative || q.Class != dnsmessage.ClassINET:
		reply.RCode = dnsmessage.RCodeRefused
	case strings.HasSuffix(name, addressDomain):
		ip, ok := decodeAddress(strings.TrimSuffix(name, addressDomain))
		if !ok {
			reply.RCode = dnsmessage.RCodeNameError
			return
		}
		addAddress(&reply.Answers, q, q.Name, ip)
	case strings.HasSuffix(name, serviceDomain):
		service, namespace, _ := strings.Cut(strings.TrimSuffix(name, serviceDomain), ".")
		if namespace == "" {
			namespace = fleet.DefaultNamespace
		}
		found, err := s.catalogue.Services(ctx, namespace, service)
		if err != nil {
			s.log.Warn("services not read for a DNS query", "service", service, "error", err)
			reply.RCode = dnsmessage.RCodeServerFailure
			return
		}
		addRegistrations(reply, q, found)
	default:
		reply.RCode = dnsmessage.RCodeNameError
	}
}

// addRegistrations answers a question with some registrations, in random order.
func addRegistrations(reply *dnsmessage.Message, q dnsmessage.Question, found []fleet.ServiceRegistration) {
	if len(found) == 0 {
		reply.RCode = dnsmessage.RCodeNameError
		return
	}
	rand.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	seen := map[netip.Addr]bool{}
	for _, r := range found[:min(len(found), maxAnswers)] {
		ip, err := netip.ParseAddr(r.Address)
		if err != nil {
			continue // a name, which another server knows
		}
		ip = ip.Unmap().WithZone("")
		if q.Type == dnsmessage.TypeSRV || q.Type == dnsmessage.TypeALL {
			target, err := dnsmessage.NewName(encodeAddress(ip) + addressDomain)
			if err != nil || r.Port < 1 || r.Port > 65535 {
				continue
			}
			reply.Answers = append(reply.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: recordTTL},
				Body:   &dnsmessage.SRVResource{Priority: 1, Weight: 1, Port: uint16(r.Port), Target: target},
			})
			if !seen[ip] {
				addAddress(&reply.Additionals, dnsmessage.Question{Type: dnsmessage.TypeALL}, target, ip)
			}
		} else if !seen[ip] {
			addAddress(&reply.Answers, q, q.Name, ip)
		}
		seen[ip] = true
	}
}

// addAddress adds the record of an address to a section, if the question asks for its type.
func addAddress(to *[]dnsmessage.Resource, q dnsmessage.Question, name dnsmessage.Name, ip netip.Addr) {
	h := dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: recordTTL}
	switch all := q.Type == dnsmessage.TypeALL; {
	case ip.Is4() && (all || q.Type == dnsmessage.TypeA):
		*to = append(*to, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: ip.As4()}})
	case ip.Is6() && (all || q.Type == dnsmessage.TypeAAAA):
		*to = append(*to, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: ip.As16()}})
	}
}

// encodeAddress returns an address as the label of a name.
func encodeAddress(ip netip.Addr) string { return hex.EncodeToString(ip.AsSlice()) }

// decodeAddress is the reverse of encodeAddress.
func decodeAddress(label string) (netip.Addr, bool) {
	b, err := hex.DecodeString(label)
	if err != nil {
		return netip.Addr{}, false
	}
	return netip.AddrFromSlice(b)
}
