package api_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	nomad "github.com/hashicorp/nomad/api"

	"skerry/fleet"
	"skerry/hub/periodic"
)

func batchJob(id string) *nomad.Job {
	job := exampleJob(id)
	kind := "batch"
	job.Type = &kind
	return job
}

// TestDispatch drives Nomad's client: payload, meta and token of a parameterized job.
func TestDispatch(t *testing.T) {
	h, _, c := mustServe(t)
	job := batchJob("resize")
	job.ParameterizedJob = &nomad.ParameterizedJobConfig{Payload: "required", MetaRequired: []string{"image"}, MetaOptional: []string{"size"}}
	reg, _, err := c.Jobs().Register(job, nil)
	if err != nil || reg.EvalID != "" {
		t.Fatalf("registering made evaluation %q, %v", reg.EvalID, err)
	}
	if j, _ := h.store.View().Job("default", "resize"); j.Status != fleet.JobStatusRunning {
		t.Fatalf("H19: the parent is %s", j.Status)
	}
	image := map[string]string{"image": "a.png"}
	for _, tc := range []struct {
		payload string
		meta    map[string]string
		says    string
	}{
		{"", image, "needs a payload"},
		{"x", nil, "required meta is missing"},
		{"x", map[string]string{"image": "a", "colour": "red"}, "does not accept"},
		{strings.Repeat("x", 16<<10+1), image, "16385 bytes"},
	} {
		if _, _, err := c.Jobs().Dispatch("resize", tc.meta, []byte(tc.payload), "", nil); err == nil || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), "400") {
			t.Errorf("dispatching %v: %v, want %q", tc.meta, err, tc.says)
		}
	}
	first, _, err := c.Jobs().Dispatch("resize", image, []byte("hello"), "", &nomad.WriteOptions{IdempotencyToken: "once"})
	if err != nil || first.EvalID == "" {
		t.Fatalf("%+v, %v", first, err)
	}
	again, _, err := c.Jobs().Dispatch("resize", image, []byte("hello"), "", &nomad.WriteOptions{IdempotencyToken: "once"})
	if err != nil || again.DispatchedJobID != first.DispatchedJobID || again.EvalID != "" {
		t.Fatalf("the same token gave %+v, %v", again, err)
	}
	child, ok := h.store.View().Job("default", fleet.JobID(first.DispatchedJobID))
	if !ok || !child.Dispatched || string(child.Payload) != "hello" || child.Meta["image"] != "a.png" || child.ParentID != "resize" || child.IsParameterized() {
		t.Fatalf("the child is %+v", child)
	}
	sum, _, err := c.Jobs().Summary("resize", nil)
	if err != nil || sum.Children == nil || sum.Children.Pending != 1 {
		t.Fatalf("summary: %+v, %v", sum, err)
	}
	if _, _, err := c.Jobs().Deregister("resize", false, nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Jobs().Dispatch("resize", image, []byte("x"), "", nil); err == nil || !strings.Contains(err.Error(), "stopped") {
		t.Fatalf("a stopped job was dispatched: %v", err)
	}
}

// TestDispatchOfPlainBody dispatches with the request's body as the payload, as senders of webhooks do.
func TestDispatchOfPlainBody(t *testing.T) {
	h, srv, c := mustServe(t)
	job := batchJob("hook")
	job.ParameterizedJob = &nomad.ParameterizedJobConfig{Payload: "required"}
	if _, _, err := c.Jobs().Register(job, nil); err != nil {
		t.Fatal(err)
	}
	path := srv.URL + "/v1/job/hook/dispatch/payload?idempotency_token="
	text := `{"event": "push",` + "\x00 not JSON"
	for token, method := range map[string]string{"one": "POST", "two": "PUT"} {
		first := mustDispatchText(t, method, path+token, text)
		child, ok := h.store.View().Job("default", fleet.JobID(first.DispatchedJobID))
		if !ok || child.ParentID != "hook" || string(child.Payload) != text || first.EvalID == "" {
			t.Fatalf("%s: the child is %+v, answer %+v", method, child, first)
		}
		if again := mustDispatchText(t, method, path+token, text); again.DispatchedJobID != first.DispatchedJobID || again.EvalID != "" {
			t.Fatalf("%s: the same token gave %+v", method, again)
		}
	}
	for text, says := range map[string]string{"": "needs a payload", strings.Repeat("x", 16<<10+1): "16385 bytes"} {
		if status, said := mustAnswer(t, "POST", path+"three", text); status != 400 || !strings.Contains(said, says) {
			t.Errorf("%d bytes: %d %s, want %q", len(text), status, said, says)
		}
	}
}

// mustDispatchText sends text as a request's body, and reads the answer of a dispatch.
func mustDispatchText(tb testing.TB, method, url, text string) (answer nomad.JobDispatchResponse) {
	tb.Helper()
	status, said := mustAnswer(tb, method, url, text)
	_, body, _ := strings.Cut(said, "\r\n\r\n")
	if err := json.Unmarshal([]byte(body), &answer); status != 200 || err != nil {
		tb.Fatalf("%s %s: %d %s, %v", method, url, status, said, err)
	}
	return answer
}

// TestDispatchOfAPeriodicJob dispatches a job that is periodic too: the dispatched job is launched at its times.
func TestDispatchOfAPeriodicJob(t *testing.T) {
	h, _, c := mustServe(t)
	job := batchJob("report")
	cron := "0 3 * * *"
	job.Periodic = &nomad.PeriodicConfig{Spec: &cron}
	job.ParameterizedJob = &nomad.ParameterizedJobConfig{Payload: "optional"}
	if _, _, err := c.Jobs().Register(job, nil); err != nil {
		t.Fatal(err)
	}
	res, _, err := c.Jobs().Dispatch("report", nil, []byte("hello"), "", &nomad.WriteOptions{IdempotencyToken: "once"})
	if err != nil || res.EvalID != "" {
		t.Fatalf("dispatching it made evaluation %q, %v", res.EvalID, err)
	}
	child, _ := h.store.View().Job("default", fleet.JobID(res.DispatchedJobID))
	if !child.IsPeriodic() || child.IsParameterized() || child.Status != fleet.JobStatusRunning {
		t.Fatalf("the child is %+v", child)
	}
	due, _ := periodic.Due(h.store.View(), time.Now().Add(25*time.Hour))
	if len(due) != 1 || due[0].Job.ID != child.ID {
		t.Fatalf("due a day later: %+v", due)
	}
	launched, _ := periodic.Child(due[0].Job, due[0].Time, due[0].Time, "e")
	if !launched.Starts() || string(launched.Payload) != "hello" || launched.ParentID != child.ID || launched.DispatchIdempotencyToken != "" {
		t.Fatalf("launched is %+v", launched)
	}
	if eval, _, err := c.Jobs().PeriodicForce("report", nil); err == nil || !strings.Contains(err.Error(), "parameterized") {
		t.Errorf("the template was launched: %q, %v", eval, err)
	}
	eval, _, err := c.Jobs().PeriodicForce(string(child.ID), nil)
	e, _ := h.store.View().Eval(fleet.EvalID(eval))
	if err != nil || e == nil {
		t.Fatalf("forcing what was dispatched: %q, %v", eval, err)
	}
	if forced, ok := h.store.View().Job("default", e.JobID); !ok || forced.ParentID != child.ID || !forced.Starts() {
		t.Errorf("forced is %+v", forced)
	}
}

// TestRunAtEdge registers a job that its nodes launch: it is evaluated at once like one that is not periodic, and has no
// children.
func TestRunAtEdge(t *testing.T) {
	h, srv, c := mustServe(t)
	periodic := map[string]any{"Spec": "@daily", "RunAtEdge": true}
	job := map[string]any{"ID": "stock", "Type": "batch", "Periodic": periodic, "TaskGroups": []any{
		map[string]any{"Name": "g", "Tasks": []any{map[string]any{"Name": "t", "Driver": "sim"}}},
	}}
	put := func() string { return putBody(t, srv.URL+"/v1/jobs", map[string]any{"Job": job}) }
	if said := put(); !strings.HasPrefix(said, "400") || !strings.Contains(said, "prohibit_overlap = true") {
		t.Fatalf("with overlapping launches: %s", said)
	}
	periodic["ProhibitOverlap"] = true
	if said := put(); !strings.HasPrefix(said, "200") {
		t.Fatal(said)
	}
	stored, _ := h.store.View().Job("default", "stock")
	evals := 0
	for range h.store.View().EvalsByJob("default", "stock") {
		evals++
	}
	if stored == nil || stored.IsPeriodic() || !stored.RunsAtEdge() || evals != 1 {
		t.Fatalf("%d evaluations of %+v", evals, stored)
	}
	for range h.store.View().PeriodicJobs() {
		t.Error("hubs would launch it")
	}
	if _, _, err := c.Jobs().PeriodicForce("stock", nil); err == nil || !strings.Contains(err.Error(), "run_at_edge") {
		t.Errorf("a forced launch: %v", err)
	}
	periodic["RunAtEdge"] = false
	if said := put(); !strings.Contains(said, "cannot become so, nor the other way round") {
		t.Errorf("hubs launch it from now on: %s", said)
	}
}

func TestPeriodicForce(t *testing.T) {
	h, _, c := mustServe(t)
	job := batchJob("nightly")
	cron, overlap := "0 3 * * *", true
	job.Periodic = &nomad.PeriodicConfig{Spec: &cron, ProhibitOverlap: &overlap}
	if reg, _, err := c.Jobs().Register(job, nil); err != nil || reg.EvalID != "" {
		t.Fatalf("registering made evaluation %q, %v", reg.EvalID, err)
	}
	eval, _, err := c.Jobs().PeriodicForce("nightly", nil)
	if err != nil || eval == "" {
		t.Fatalf("%q, %v", eval, err)
	}
	e, _ := h.store.View().Eval(fleet.EvalID(eval))
	if child, ok := h.store.View().Job("default", e.JobID); !ok || child.ParentID != "nightly" || child.IsPeriodic() || e.TriggeredBy != "periodic-job" {
		t.Fatalf("the child is %+v, its evaluation %+v", child, e)
	}
	if _, _, err := c.Jobs().PeriodicForce("nightly", nil); err == nil || !strings.Contains(err.Error(), "overlap") {
		t.Fatalf("H10: forced beside a child that is not over: %v", err)
	}
	cron = "0 0 30 2 *"
	if _, _, err := c.Jobs().Register(job, nil); err == nil || strings.Count(err.Error(), "never launches") != 1 {
		t.Fatalf("a job that never launches was registered, or is refused for it twice: %v", err)
	}
	if _, _, err := c.Jobs().Register(batchJob("nightly"), nil); err == nil || !strings.Contains(err.Error(), "periodic") {
		t.Fatalf("H13: a periodic job became another one: %v", err)
	}
}
