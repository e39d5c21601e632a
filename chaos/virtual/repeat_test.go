package virtual

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRepeatsSayWhereHistoriesDiffer groups the histories of four runs, of which one differs in a record and one ends early.
func TestRepeatsSayWhereHistoriesDiffer(t *testing.T) {
	long := strings.Repeat("x", 200)
	var runs []repeatedRun
	for i, records := range []string{
		"one\ntwo " + long + " 2 then\nthree\n",
		"one\ntwo " + long + " 7 then\nthree\nfour\n",
		"one\ntwo " + long + " 2 then\nthree\n",
		"one\n",
	} {
		r := repeatedRun{number: i + 1, path: filepath.Join(t.TempDir(), HistoryFile), outcome: []string{"pass", "violation settled"}[i%2]}
		if err := os.WriteFile(r.path, []byte(records+`{"End":{"Outcome":"pass","Wall":`+string(rune('1'+i))+"}}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := r.digestHistory(); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, r)
	}
	var out strings.Builder
	c := &campaign{Campaign: Campaign{Out: &out, Times: len(runs)}}
	if err := c.printRepeats(Scenario{Name: "seed 17"}, groupByHistory(runs)); err != nil {
		t.Fatal(err)
	}
	shown := long[:120-len(" ")]
	want := "seed 17: 2 of 4 runs have the same history of 3 records: pass\n" +
		"  1 runs (the first is run 2) have another one of 4 records: violation settled\n" +
		"  they differ from record 2 on:\n    run 1: " + shown + " 2 then\n    run 2: " + shown + " 7 then\n" +
		"  1 runs (the first is run 4) have another one of 1 records: violation settled\n" +
		"  they differ from record 2 on:\n    run 1: two " + long + " 2 then\n    run 4: (it has ended)\n"
	if got := out.String(); got != want {
		t.Errorf("printed\n%s\nwant\n%s", got, want)
	}

	runs[1].path = t.TempDir() // a folder is no history
	if err := c.printRepeats(Scenario{}, groupByHistory(runs)); err == nil {
		t.Error("a history that cannot be read is no error")
	}
}
