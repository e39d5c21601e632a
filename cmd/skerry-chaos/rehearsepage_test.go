package main

import (
	"os"
	"strings"
	"testing"

	"skerry/fleet"
)

// TestRehearsePageHasTheNotes compares the last lines of the example on the page with those that a rehearsal prints.
func TestRehearsePageHasTheNotes(t *testing.T) {
	page, err := os.ReadFile("../../docs/rehearse.md")
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(string(page)), " ")
	task := fleet.Task{Name: "api", Driver: "raw_exec"}
	example := rehearsal{Jobs: []*fleet.Job{{ID: "prices", Type: fleet.JobTypeService, TaskGroups: []fleet.TaskGroup{{Name: "api", Tasks: []fleet.Task{task}}}}}}
	notes := example.listNotes()
	if len(notes) < 2 {
		t.Errorf("the notes are %q", notes)
	}
	for _, note := range notes {
		if !strings.Contains(words, note) {
			t.Errorf("docs/rehearse.md does not have %q", note)
		}
	}
}
