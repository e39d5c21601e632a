package api_test

import "testing"

func TestSystem(t *testing.T) {
	h, _, c := mustServe(t)
	if err := c.System().GarbageCollect(); err != nil || h.collected != 1 {
		t.Fatalf("collected %d times, %v", h.collected, err)
	}
	if err := c.System().ReconcileSummaries(); err != nil {
		t.Fatal(err)
	}
}
