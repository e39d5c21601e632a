package client_test

import (
	"io"
	"net/http"
	"slices"
	"testing"

	"skerry/api"
	"skerry/fleet"
)

// A stream that breaks is resumed behind the last batch, each event comes once, and an error of the
// stream ends it.
func TestEventsResume(t *testing.T) {
	turns := []string{
		`{"Index": 7, "Events": [{"Key": "a"}]}` + "\n{}\n" + `{"Index": 9, "Ev`,
		`{"Index": 9, "Events": [{"Key": "b"}]}` + "\n" + `{"Error": "too old"}`,
	}
	var asked []string
	c := mustServe(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Query().Encode())
		_, _ = io.WriteString(w, turns[0])
		turns = turns[1:]
	})
	var got []fleet.Index
	err := c.Events(t.Context(), 3, []string{"Job"}, func(b api.EventBatch) error {
		got = append(got, b.Index)
		return nil
	})
	if err == nil || err.Error() != "read events after 9: too old" {
		t.Errorf("ended with %v", err)
	}
	if want := []fleet.Index{7, 9}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if want := []string{"after=3&topic=Job", "after=7&topic=Job"}; !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
}
