package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"skerry/api"
	"skerry/cmd/auditchain"
	"skerry/internal/hashchain"
)

// lines are a good audit of so many entries.
func lines(tb testing.TB, n int) []string {
	tb.Helper()
	var all []string
	prev := ""
	for i := range n {
		line, err := json.Marshal(api.AuditEntry{Seq: uint64(i) + 8, Verb: "PUT", Object: "/v1/jobs", Prev: prev})
		if err != nil {
			tb.Fatal(err)
		}
		prev = hashchain.Hash(line)
		all = append(all, string(line))
	}
	return all
}

func TestChangedAuditsAreFound(t *testing.T) {
	noted := "10:" + hashchain.Hash([]byte(lines(t, 3)[2]))
	for name, try := range map[string]struct {
		change func([]string) []string
		head   string
		says   string // "": in order
	}{
		"as it was":                 {func(l []string) []string { return l }, "", ""},
		"with the noted hash":       {func(l []string) []string { return l }, noted, ""},
		"without the oldest":        {func(l []string) []string { return l[2:] }, noted, ""},
		"a changed line":            {func(l []string) []string { l[1] = strings.Replace(l[1], "jobs", "nods", 1); return l }, "", "entry 10 does not follow"},
		"one left out":              {func(l []string) []string { return append(l[:1], l[2:]...) }, "", "follows entry 8"},
		"two exchanged":             {func(l []string) []string { l[1], l[2] = l[2], l[1]; return l }, "", "follows entry 8"},
		"the noted line is changed": {func(l []string) []string { l[2] = strings.Replace(l[2], "jobs", "nods", 1); return l[:3] }, noted, "another hash than the noted one"},
		"shorter than noted":        {func(l []string) []string { return l[:2] }, noted, "it has no entry 10"},
		"no JSON":                   {func(l []string) []string { l[1] = "x"; return l }, "", "line 2"},
	} {
		var ch auditchain.Chain
		if try.head != "" {
			if err := ch.SetHead(try.head); err != nil {
				t.Fatal(err)
			}
		}
		err := scanEntries(strings.NewReader(strings.Join(try.change(lines(t, 5)), "\n")), func(line []byte, _ api.AuditEntry) error { return ch.AddLine(line) })
		if err == nil {
			err = ch.CheckHead()
		}
		if (err == nil) != (try.says == "") || err != nil && !strings.Contains(err.Error(), try.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, bad := range []string{"", "x", "7", "0:" + noted[3:], "7:abc"} {
		if err := new(auditchain.Chain).SetHead(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// The list names the token and the roles that it had.
func TestEntriesNameRoles(t *testing.T) {
	e := api.AuditEntry{Verb: "PUT", Object: "/v1/jobs", Status: 200, Source: "192.0.2.9", Actor: api.AuditActor{Accessor: "a1", Roles: []string{"night", "ops"}, Certificate: "anna"}}
	if got := fmt.Sprintf("%q", entryCells(e)[3:]); got != `["a1" "night, ops" "192.0.2.9" "PUT /v1/jobs" "200"]` {
		t.Error(got)
	}
}

// FuzzScan feeds audits: a line is refused, or has the hash that the next one must have.
func FuzzScan(f *testing.F) {
	f.Add([]byte(`{"Seq":1}` + "\n" + `{"Seq":2,"Prev":"x"}`))
	f.Add([]byte("\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var ch auditchain.Chain
		if err := scanEntries(bytes.NewReader(text), func(line []byte, _ api.AuditEntry) error { return ch.AddLine(line) }); err == nil && ch.Entries > 0 && len(ch.Hash) != 64 {
			t.Fatalf("%+v", ch)
		}
	})
}
