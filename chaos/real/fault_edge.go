package real

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/chaos/faultnet"
	"skerry/chaos/schedule"
)

var edgeKinds = []realKind{
	{kind: schedule.EdgeKill, effects: []check.Effect{check.Halts}, edge: func(s *campaignRun, _ schedule.Fault, e *cluster.Edge) memberFault {
		return &stoppedProcess{
			s: s, name: e.Name, what: "agent killed",
			how:   func() error { e.Kill(); s.processEnded(e.Name, true, check.ProcessKill); return nil },
			again: func() error { return s.startEdge(e) },
		}
	}},
	{kind: schedule.EdgePause, effects: []check.Effect{check.Halts}, edge: func(_ *campaignRun, _ schedule.Fault, e *cluster.Edge) memberFault {
		return &paused{name: e.Name, who: e}
	}},
	{kind: schedule.EdgeReboot, effects: []check.Effect{check.Halts, check.Reboots}, edge: func(s *campaignRun, _ schedule.Fault, e *cluster.Edge) memberFault {
		return &stoppedProcess{
			s: s, name: e.Name, what: "shut down and booted",
			how: func() error {
				err := e.Shutdown()
				s.processEnded(e.Name, true, check.ProcessReboot)
				return err
			},
			again: func() error { return s.bootEdge(e) },
		}
	}},
	{kind: schedule.PowerCut, needs: needs{disks: true}, effects: []check.Effect{check.Halts, check.Reboots},
		edge: func(s *campaignRun, _ schedule.Fault, e *cluster.Edge) memberFault {
			return newPowerCut(s, e, "its disk forgot what was not synced", nil)
		}},
	{kind: schedule.TornPage, needs: needs{disks: true}, effects: []check.Effect{check.Halts, check.Reboots, check.Damages},
		edge: func(s *campaignRun, _ schedule.Fault, e *cluster.Edge) memberFault {
			return newPowerCut(s, e, "a page of the journal is torn", tearPage)
		}},
	{kind: schedule.BitFlip, effects: []check.Effect{check.Halts, check.Damages}, edge: func(s *campaignRun, f schedule.Fault, e *cluster.Edge) memberFault {
		return &stoppedProcess{
			s: s, name: e.Name, what: fmt.Sprintf("%d bits of the journal flipped", f.Params.Bits),
			how: func() error {
				s.keepJournalRows(e)
				e.Kill()
				s.processEnded(e.Name, true, check.ProcessKill)
				return flipBits(journalOf(e), f.Params.Bits)
			},
			again: func() error { return s.startEdge(e) },
		}
	}},
	{kind: schedule.Clone, effects: []check.Effect{check.Clones, check.Halts}, edge: func(s *campaignRun, _ schedule.Fault, e *cluster.Edge) memberFault {
		return &cloned{s: s, first: e}
	}},
	{kind: schedule.CertExpired, effects: []check.Effect{check.Severs}, edge: func(s *campaignRun, _ schedule.Fault, e *cluster.Edge) memberFault {
		return &expired{s: s, edge: e, cut: impaired{net: s.Net, member: e.Name, with: faultnet.Dead()}}
	}},
}

func journalOf(e *cluster.Edge) string { return filepath.Join(e.Dir, "journal.db") }

// newPowerCut cuts an edge's power, and does something to its journal while the
// machine is off.
func newPowerCut(s *campaignRun, e *cluster.Edge, what string, damage func(journal string) error) memberFault {
	return &stoppedProcess{
		s: s, name: e.Name, what: "power cut: " + what,
		how: func() error {
			if damage != nil {
				s.keepJournalRows(e)
			}
			err := e.PowerCut()
			s.processEnded(e.Name, true, check.ProcessPowerCut)
			if err == nil && damage != nil {
				err = damage(journalOf(e))
			}
			return err
		},
		again: func() error { return s.bootEdge(e) },
	}
}

// cloned is a second machine with a copy of an edge's data.
type cloned struct {
	s      *campaignRun
	first  *cluster.Edge
	second *cluster.Edge
	fenced string
}

// firstBack is how long the first machine may take to have its session back before
// the second one starts. One that has none could not be told from its clone.
const firstBack = 15 * time.Second

func (t *cloned) injectFault(ctx context.Context) (err error) {
	if t.second, err = t.s.fleet.NewEdge(t.s.cloneName(), t.first.Flags...); err != nil {
		return err
	}
	t.s.expectDown(t.first.Name)
	t.first.Kill()
	t.s.processEnded(t.first.Name, true, check.ProcessKill)
	err = replaceData(t.first.Dir, t.second.Dir) // a disk of its own is there already
	err = errors.Join(err, t.s.startEdge(t.first))
	t.s.expectUp(t.first.Name)
	if err != nil {
		return err
	}
	if back := cluster.Eventually(ctx, firstBack, "the first machine is back", t.firstReady); back != nil {
		return ctx.Err() // no clone is started, and there will be no evidence
	}
	return t.second.Start()
}

func (t *cloned) firstReady(ctx context.Context) string {
	st, err := t.first.Local().Status(ctx)
	if err != nil {
		return err.Error()
	}
	if st.Link.State != "connected" || st.Link.Status != "ready" || st.Journal.Unacknowledged > 0 {
		return "its link is " + st.Link.State
	}
	return ""
}

func (t *cloned) healFault(ctx context.Context) error {
	if t.second == nil {
		return nil
	}
	soon, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if st, err := t.second.Local().Status(soon); err == nil {
		t.fenced = st.Link.Fenced
	}
	return t.second.Scrap()
}

func (t *cloned) faultEvidence() (uint64, string) {
	if t.fenced == "" {
		return 0, "the clone was not fenced in its time"
	}
	return 1, "the clone of " + t.first.Name + " was fenced: " + t.fenced
}

// expired cuts an edge off until its certificate is no longer valid.
type expired struct {
	s    *campaignRun
	edge *cluster.Edge
	cut  impaired
	said string
}

// maxExpiry bounds how long a certificate is waited for.
const maxExpiry = 3 * time.Minute

func (t *expired) injectFault(ctx context.Context) error { return t.cut.injectFault(ctx) }

func (t *expired) healFault(ctx context.Context) error {
	ends, err := certificateEnds(t.edge)
	if wait := time.Until(ends) + time.Second; err == nil && wait < maxExpiry {
		err = pause(ctx, wait)
	}
	if err == nil {
		// It cannot have been renewed behind a cut link.
		if ends, err = certificateEnds(t.edge); err == nil && time.Now().After(ends) {
			t.said = fmt.Sprintf("%s came back with a certificate that had ended %s before", t.edge.Name, time.Since(ends).Round(time.Second))
		}
	}
	return errors.Join(err, t.cut.healFault(ctx))
}

func (t *expired) faultEvidence() (uint64, string) {
	if t.said == "" {
		return 0, ""
	}
	return 1, t.said
}

// certificateEnds is until when an edge's certificate is valid.
func certificateEnds(e *cluster.Edge) (time.Time, error) {
	b, err := os.ReadFile(filepath.Join(e.Dir, "identity", "cert.pem"))
	if err != nil {
		return time.Time{}, fmt.Errorf("read the certificate of %s: %w", e.Name, err)
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return time.Time{}, fmt.Errorf("read the certificate of %s: it is no PEM", e.Name)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the certificate of %s: %w", e.Name, err)
	}
	return cert.NotAfter, nil
}
