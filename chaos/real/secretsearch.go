package real

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"skerry/chaos/check"
	"skerry/chaos/cluster"
	"skerry/chaos/engine"
	"skerry/chaos/proc"
)

// profiles are the profiles that a hub serves with --debug. It serves no command line: see TestProfiles of hub/api.
var profiles = []string{
	"allocs?debug=1", "block?debug=1", "goroutine?debug=2", "heap?debug=1", "mutex?debug=1", "threadcreate?debug=1", "heap", "trace?seconds=1",
}

const (
	// searchEvery is the shortest time between two searches in the middle of a run.
	searchEvery = time.Minute
	// answersBound is the longest time in which a hub answers what is searched at the end.
	answersBound = 30 * time.Second
)

// searchSecrets searches everything that the members have written for the run's secrets in clear: their data and its copies, the
// output of their programs, and the command lines of all processes.
func (s *fleetRun) searchSecrets() (check.SecretSearch, error) {
	s.marks.MarkFiles(s.Dir)
	o, err := s.marks.SearchFolder(s.Dir)
	if err != nil {
		return o, err
	}
	pids, err := proc.Below(s.Dir)
	if err != nil {
		return o, err
	}
	for _, pid := range pids {
		line, err := proc.CommandLine(pid)
		if err != nil {
			continue // it has ended
		}
		if kind := s.marks.Find(line); kind != "" {
			program, _, _ := bytes.Cut(line, []byte{0})
			o.Found = append(o.Found, fmt.Sprintf("the command line of %s: %s", filepath.Base(string(program)), kind))
		}
	}
	return o, nil
}

// failOnSecrets returns ErrViolated if a search has found a secret in clear, joined with the error of the search.
func failOnSecrets(o check.SecretSearch, err error) error {
	if len(o.Found) > 0 {
		err = errors.Join(fmt.Errorf("%w: %s: a secret is in clear in %s", ErrViolated, check.SecretsSealed.Slug(), o.Found[0]), err)
	}
	return err
}

// turnAccessOn turns access control on, makes secrets of each kind, and has the run call the hubs with the management token.
func (s *campaignRun) turnAccessOn(ctx context.Context) error {
	leader, err := s.fleet.Leader(ctx)
	if err != nil {
		return err
	}
	access, err := engine.BootstrapAccess(ctx, leader.Hub, s.marks)
	if err != nil {
		return err
	}
	s.management = access.ManagementSecret()
	for _, h := range s.fleet.Hubs {
		h.Hub = access.Manager(h.Hub)
	}
	if s.siteCode, err = engine.MakeSiteCode(ctx, leader.Hub, "somebody on site", s.marks); err != nil {
		return fmt.Errorf("make a site code: %w", err)
	}
	return s.awaitFleet(ctx) // until each hub knows the token
}

// judgeSecrets uses the site code on each edge, has everything that members have written searched for secrets, and passes the result to
// the monitor. It does nothing within searchEvery of the last time: there are rounds of a few seconds.
func (s *campaignRun) judgeSecrets(ctx context.Context) {
	if !s.lastSearch.IsZero() && time.Since(s.lastSearch) < searchEvery {
		return
	}
	began := time.Now()
	s.lastSearch = began
	for _, e := range s.fleet.Edges {
		soon, cancel := context.WithTimeout(ctx, lookBound)
		_, _ = e.Local().WithSiteCode(s.siteCode.Code).Status(soon) // whatever the answer is, the code is in it or in a log
		cancel()
	}
	o, err := s.searchSecrets()
	s.judgeSearch(o, err, began)
}

// judgeSecretsAtEnd searches the profiles of all hubs and a snapshot of their state, and everything that members have written, after it has
// ended them with a dump of their goroutines.
func (s *campaignRun) judgeSecretsAtEnd(ctx context.Context) {
	began := time.Now()
	s.marks.MarkFiles(s.Dir)
	o := check.SecretSearch{}
	var errs []error
	for _, h := range s.fleet.Hubs {
		if h.Running() { // else it has ended unexpectedly, which is a violation
			errs = append(errs, s.searchAnswers(ctx, h, &o))
		}
	}
	for _, m := range s.fleet.Machines() {
		errs = append(errs, m.Common().Dump())
	}
	found, err := s.searchSecrets()
	o.Files, o.Found = o.Files+found.Files, append(o.Found, found.Found...)
	s.judgeSearch(o, errors.Join(append(errs, err)...), began)
}

// searchAnswers searches what a hub tells of itself: its profiles, its metrics, its configuration, jobs, allocations with their events, the audit, and a snapshot.
func (s *campaignRun) searchAnswers(ctx context.Context, h *cluster.Hub, o *check.SecretSearch) error {
	paths := []string{"/v1/operator/snapshot", "/v1/metrics", "/v1/agent/self", "/v1/jobs?meta=true", "/v1/allocations?task_states=true", "/v1/operator/audit"}
	for _, p := range profiles {
		paths = append(paths, "/debug/pprof/"+p)
	}
	for _, path := range paths {
		var b []byte
		err := cluster.Eventually(ctx, answersBound, h.Name+" answers to "+path, func(ctx context.Context) string { // there may be no leader now
			var err error
			if b, err = h.Read(ctx, path, s.management); err != nil {
				return err.Error()
			}
			return ""
		})
		if err != nil {
			return err
		}
		o.Files++
		if kind := s.marks.SearchReader(bytes.NewReader(b)); kind != "" {
			o.Found = append(o.Found, fmt.Sprintf("the answer of %s to %s: %s", h.Name, path, kind))
		}
	}
	return nil
}

// searchReport returns ErrViolated if the history of the run or its report, which are complete, have a secret.
func (s *campaignRun) searchReport() error {
	if s.Report == "" {
		return nil
	}
	return failOnSecrets(s.marks.SearchFolder(s.Report))
}

// judgeSearch passes the result of a search to the monitor, and keeps the first error for the verdict.
func (s *campaignRun) judgeSearch(o check.SecretSearch, err error, began time.Time) {
	s.watch.judgeAndRecord(check.Observation{Search: &o})
	s.searches, s.searched, s.searchTime = s.searches+1, s.searched+o.Files, s.searchTime+time.Since(began)
	if s.searchErr == nil && err != nil {
		s.searchErr = err
	}
}
