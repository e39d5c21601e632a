package main

import (
	"testing"

	"skerry/chaos/mutate"
)

// TestEquivalentMutantsExist keeps the list of equivalent mutants as short as the source has it.
func TestEquivalentMutantsExist(t *testing.T) {
	all, err := mutate.Find("../..", mutated)
	if err != nil {
		t.Fatal(err)
	}
	exist := map[string]bool{}
	for _, m := range all {
		exist[m.Key()] = true
	}
	equivalent, err := mutate.ReadEquivalent("../../chaos/mutate")
	if err != nil {
		t.Fatal(err)
	}
	for key := range equivalent {
		if !exist[key] {
			t.Errorf("no mutant is that: %s", key)
		}
	}
}
