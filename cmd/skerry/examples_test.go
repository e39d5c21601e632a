package main

import (
	"testing"

	"skerry/cmd/console/examples"
)

// TestExamples checks that the help of each command has an example, and that each example is a
// command line which this program takes.
func TestExamples(t *testing.T) {
	lines, problems := examples.Check(rootCommand)
	for _, err := range problems {
		t.Error(err)
	}
	if lines < 200 {
		t.Errorf("only %d examples were read", lines)
	}
}
