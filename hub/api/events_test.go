package api_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	nomad "github.com/hashicorp/nomad/api"
)

// TestNomadClientFollowsEvents has Nomad's published client read the events of before and those that follow.
func TestNomadClientFollowsEvents(t *testing.T) {
	h, _, c := mustServe(t)
	if _, _, err := c.Jobs().Register(exampleJob("web"), nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	topics := map[nomad.Topic][]string{nomad.TopicJob: {"web"}, nomad.TopicAllocation: {"web"}, nomad.TopicEvaluation: {"*"}, nomad.TopicNode: nil}
	stream, err := c.EventStream().Stream(ctx, topics, 0, &nomad.QueryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	id := mustPlace(t, h, "web")
	seen := map[string]bool{}
	for !seen["AllocationCreated"] {
		batch, ok := <-stream
		if !ok {
			t.Fatalf("the stream ended; seen %v", seen)
		}
		if batch.Err != nil {
			t.Fatal(batch.Err)
		}
		for _, e := range batch.Events {
			seen[e.Type] = true
			switch e.Topic {
			case nomad.TopicJob:
				if job, err := e.Job(); err != nil || *job.ID != "web" {
					t.Fatalf("a job's event: %+v, %v", job, err)
				}
			case nomad.TopicAllocation:
				if alloc, err := e.Allocation(); err != nil || alloc.ID != string(id) || alloc.Job != nil {
					t.Fatalf("an allocation's event: %+v, %v", alloc, err)
				}
			case nomad.TopicEvaluation:
				if eval, err := e.Evaluation(); err != nil || eval.JobID != "web" {
					t.Fatalf("an evaluation's event: %+v, %v", eval, err)
				}
			case nomad.TopicNode:
				if node, err := e.Node(); err != nil || node.Name != "edge1" {
					t.Fatalf("a node's event: %+v, %v", node, err)
				}
			}
		}
	}
	for _, want := range []string{"NodeRegistration", "JobRegistered", "EvaluationUpdated"} {
		if !seen[want] {
			t.Errorf("no %s among %v", want, seen)
		}
	}
}

func TestBadEventStreams(t *testing.T) {
	_, srv, _ := mustServe(t)
	for query, says := range map[string]string{
		"topic=Cats":      "no topic",
		"topic=Job:":      "no key",
		"index=abc":       "whole number",
		"index=999999":    "not there yet",
		"after=x":         "after",
		"after=1&index=1": "after",
	} {
		resp, err := http.Get(srv.URL + "/v1/event/stream?" + query)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(b), says) {
			t.Errorf("%s: %d %q, %v; want 400 with %q", query, resp.StatusCode, b, err, says)
		}
	}
}
