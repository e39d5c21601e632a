package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"skerry/fleet"
)

// Flaw is the reason for which hubs have to refuse a dispatch.
type Flaw string

// The flaws of a dispatch.
const (
	FlawMissingMeta  Flaw = "missing-meta"  // it lacks DispatchMeta, which the job requires
	FlawUnknownMeta  Flaw = "unknown-meta"  // it has a key that the job does not accept
	FlawPayload      Flaw = "payload"       // it has none where the job requires one, or one where the job forbids it
	FlawLargePayload Flaw = "large-payload" // its payload is larger than fleet.MaxPayload
)

// Keys of the meta of a job with Payload, and the file in which its task finds the payload.
const (
	DispatchMeta = "order" // required
	DispatchNote = "note"  // optional
	PayloadFile  = "payload"
)

// setDispatchRules makes a job with Payload a parameterized one.
func (j Job) setDispatchRules(job *fleet.Job) {
	if j.Payload == "" {
		return
	}
	job.ParameterizedJob = &fleet.ParameterizedJob{Payload: j.Payload, MetaRequired: []string{DispatchMeta}, MetaOptional: []string{DispatchNote}}
	job.TaskGroups[0].Tasks[0].DispatchPayload = &fleet.DispatchPayload{File: PayloadFile}
}

// DispatchRequest is the request of a Dispatch step. The same schedule and step give the same one.
type DispatchRequest struct {
	Token   string // idempotency token
	Payload []byte
	Meta    map[string]string
	Repeats bool // the user repeats it with its token, though a hub has answered
}

// dispatchNotes are values of DispatchNote.
var dispatchNotes = []string{"", "two words", `"quoted" = #5`, "über Bord", "first line\nsecond line"}

// DispatchOf returns the request of a Dispatch step. The dispatch of a job with HCL has neither payload nor meta.
func (s Schedule) DispatchOf(step Step) DispatchRequest {
	req := DispatchRequest{Token: fmt.Sprintf("%d-%s", s.Seed, step.At)}
	j, _ := s.Job(step.Job)
	if j.Payload == "" {
		return req
	}
	rng := rand.New(rand.NewPCG(s.Seed^dispatchStream, uint64(step.At)))
	size := pick(rng, 1, 100, 5000, fleet.MaxPayload)
	req.Repeats = rng.IntN(2) == 0
	req.Meta = map[string]string{DispatchMeta: req.Token}
	if rng.IntN(2) == 0 {
		req.Meta[DispatchNote] = pick(rng, dispatchNotes...)
	}
	gives := j.Payload == fleet.PayloadRequired || j.Payload == fleet.PayloadOptional && rng.IntN(2) == 0
	switch step.Flaw {
	case FlawMissingMeta:
		delete(req.Meta, DispatchMeta)
	case FlawUnknownMeta:
		req.Meta["colour"] = "red"
	case FlawPayload:
		gives = !gives
	case FlawLargePayload:
		gives, size = true, fleet.MaxPayload+1
	}
	if gives {
		req.Payload = make([]byte, size)
		for i := range req.Payload {
			req.Payload[i] = byte(rng.Uint32())
		}
	}
	return req
}

// dispatchStream separates the random numbers of addDispatches from the others, as windowStream does.
const dispatchStream = 0xd15b

// dispatchesPerHour bounds the drawn dispatches of a run of an hour, after the first two: there are fewer.
const dispatchesPerHour = 8

// addDispatches gives some runs a parameterized job, which is dispatched a few times in an hour. A third of the dispatches
// have a flaw.
func (d *drawer) addDispatches() {
	d.rng = rand.New(rand.NewPCG(d.s.Seed, dispatchStream))
	if len(d.s.Jobs) == 0 || len(d.s.Jobs) >= MaxJobs || !d.drawBool(50) {
		return
	}
	j := Job{
		ID: d.nextID("errand"), Type: fleet.JobTypeBatch, Count: 1 + d.rng.IntN(2), Pool: fleet.AllPools,
		Payload: pick(d.rng, fleet.PayloadOptional, fleet.PayloadRequired, fleet.PayloadForbidden),
		Task:    Script{RunFor: d.drawDuration(5*time.Second, 3*time.Minute)},
	}
	if d.drawBool(60) {
		j.Disconnect = &fleet.Disconnect{LostAfter: new(d.drawDuration(30*time.Second, 20*time.Minute))}
	}
	d.s.Jobs = append(d.s.Jobs, j)
	for range 2 + d.rng.IntN(int(dispatchesPerHour*max(1, d.s.Length.Hours()))) {
		d.addStep(Step{At: d.drawTime(0, d.s.Length), Verb: Dispatch, Job: j.ID, Flaw: d.drawFlaw(j)})
	}
}

// drawFlaw draws the flaw of a dispatch of a job; "" in two of three cases.
func (d *drawer) drawFlaw(j Job) Flaw {
	if d.drawBool(67) {
		return ""
	}
	if j.Payload == fleet.PayloadOptional {
		return pick(d.rng, FlawMissingMeta, FlawUnknownMeta, FlawLargePayload)
	}
	return pick(d.rng, FlawMissingMeta, FlawUnknownMeta, FlawPayload, FlawLargePayload)
}

// checkPayload adds a problem if the job's payload is none that a parameterized job has.
func (j Job) checkPayload(ps *Problems, i int) {
	if !slices.Contains([]string{"", fleet.PayloadOptional, fleet.PayloadRequired, fleet.PayloadForbidden}, j.Payload) {
		ps.addWithHint(PartJob, i, "payload: optional", "payload is optional, required or forbidden, not %q", j.Payload)
	}
}

// checkFlaw adds a problem if the step, which is one of job j, has a flaw that no dispatch of the job can have.
func (step Step) checkFlaw(ps *Problems, i int, j Job) {
	switch {
	case step.Flaw == "":
	case step.Verb != Dispatch || j.Payload == "":
		ps.add(PartStep, i, "a flaw is of a dispatch of a job with payload")
	case !slices.Contains([]Flaw{FlawMissingMeta, FlawUnknownMeta, FlawPayload, FlawLargePayload}, step.Flaw):
		ps.add(PartStep, i, "a flaw is missing-meta, unknown-meta, payload or large-payload, not %q", step.Flaw)
	case step.Flaw == FlawPayload && j.Payload == fleet.PayloadOptional:
		ps.add(PartStep, i, "dispatch %s: its payload is optional, so that neither one nor none is a flaw", j.ID)
	}
}
