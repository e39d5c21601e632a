package schedule_test

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"testing"
	"time"

	"skerry/chaos/schedule"
	"skerry/fleet"
	"skerry/fleet/validate"
)

// mustDispatch returns the request of a dispatch of a job with that payload, and what the job says of it.
func mustDispatch(tb testing.TB, payload string, at time.Duration, flaw schedule.Flaw) (schedule.DispatchRequest, error) {
	tb.Helper()
	j := schedule.Job{ID: "errand", Type: fleet.JobTypeBatch, Count: 1, Payload: payload}
	spec, err := j.Spec()
	if err != nil {
		tb.Fatal(err)
	}
	s := schedule.Schedule{Seed: 7, Jobs: []schedule.Job{j}}
	step := schedule.Step{At: at, Verb: schedule.Dispatch, Job: j.ID, Flaw: flaw}
	req, again := s.DispatchOf(step), s.DispatchOf(step)
	if req.Token != again.Token || !bytes.Equal(req.Payload, again.Payload) || fmt.Sprint(req.Meta) != fmt.Sprint(again.Meta) || req.Repeats != again.Repeats {
		tb.Fatalf("two requests of one step: %+v and %+v", req, again)
	}
	return req, validate.Dispatch(spec, req.Payload, req.Meta)
}

// TestDispatchRequests checks that hubs have to refuse the dispatches with a flaw and no others, and that payloads up to the
// largest, notes and repetitions occur.
func TestDispatchRequests(t *testing.T) {
	largest, none, notes, repeats := 0, 0, 0, 0
	for _, payload := range []string{fleet.PayloadOptional, fleet.PayloadRequired, fleet.PayloadForbidden} {
		flaws := []schedule.Flaw{"", schedule.FlawMissingMeta, schedule.FlawUnknownMeta, schedule.FlawPayload, schedule.FlawLargePayload}
		if payload == fleet.PayloadOptional {
			flaws = slices.DeleteFunc(flaws, func(f schedule.Flaw) bool { return f == schedule.FlawPayload })
		}
		for i := range 40 {
			for _, flaw := range flaws {
				req, err := mustDispatch(t, payload, time.Duration(i)*time.Second, flaw)
				if (err != nil) != (flaw != "") {
					t.Errorf("payload %s, flaw %q: %v", payload, flaw, err)
				}
				if flaw != "" {
					continue
				}
				largest, none = largest+count(len(req.Payload) == fleet.MaxPayload), none+count(len(req.Payload) == 0)
				notes, repeats = notes+count(len(req.Meta) > 1), repeats+count(req.Repeats)
			}
		}
	}
	if min(largest, none, notes, repeats) < 5 {
		t.Errorf("of 120 requests %d have the largest payload, %d have none, %d have a note and %d are repeated", largest, none, notes, repeats)
	}
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// TestDrawnDispatches checks that some runs have a parameterized job, with dispatches that hubs accept and refuse, and that some
// have a job that edges launch.
func TestDrawnDispatches(t *testing.T) {
	const seeds = 50
	runs, atEdges, accepted, refused := 0, 0, 0, map[schedule.Flaw]int{}
	for seed := range uint64(seeds) {
		s := schedule.Draw(seed, schedule.Shape{})
		runs += count(slices.ContainsFunc(s.Jobs, func(j schedule.Job) bool { return j.Payload != "" }))
		atEdges += count(slices.ContainsFunc(s.Jobs, func(j schedule.Job) bool { return j.AtEdge }))
		for _, step := range s.Steps {
			switch {
			case step.Verb != schedule.Dispatch:
			case step.Flaw == "":
				accepted++
			default:
				refused[step.Flaw]++
			}
		}
	}
	if atEdges < seeds/5 {
		t.Errorf("%d of %d runs have a job that edges launch", atEdges, seeds)
	}
	if runs < seeds/3 || accepted < seeds || len(refused) < 4 {
		t.Errorf("%d of %d runs have a parameterized job: %d dispatches are to be accepted, %v refused", runs, seeds, accepted, refused)
	}
}

// drawnBefore is the checksum of the schedules of the first 200 seeds before jobs with payload or run_at_edge were drawn.
const drawnBefore = 0x7c77b29d

// TestAdditionsChangeNothingElse checks that older seeds draw the same faults, jobs and steps, beside these jobs.
func TestAdditionsChangeNothingElse(t *testing.T) {
	sum := crc32.NewIEEE()
	for seed := range uint64(200) {
		s := schedule.Draw(seed, schedule.Shape{})
		s.Jobs = slices.DeleteFunc(s.Jobs, func(j schedule.Job) bool { return j.Payload != "" || j.AtEdge })
		s.Steps = slices.DeleteFunc(s.Steps, func(step schedule.Step) bool { return step.Verb == schedule.Dispatch })
		_, _ = io.WriteString(sum, s.String())
	}
	if sum.Sum32() != drawnBefore {
		t.Errorf("the schedules have the checksum %#x, and had %#x", sum.Sum32(), drawnBefore)
	}
}
