package mutate_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"skerry/chaos/mutate"
)

const source = `package toy

func grow(n int, on bool) (int, error) {
	if n < 7 && !on {
		drop(n + 1)
		state.n = true
	}
	err := save()
	if err != nil {
		return 0, err
	}
	mu.Lock()
	return n, nil
}
`

func TestFindAndDraw(t *testing.T) {
	root := t.TempDir()
	for _, folder := range []string{"one", "two"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, folder, "toy.go"), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all, err := mutate.Find(root, []string{"one", "two"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range all[:len(all)/2] {
		got = append(got, m.Kind+": "+m.After)
	}
	want := []string{
		"branch: if (n < 7 && !on) && false {",
		"logic: if n < 7 ¦¦ !on {",
		"comparison: if n <= 7 && !on {",
		"off-by-one: if n < 8 && !on {",
		"logic: if n < 7 && on {",
		"call: _ = func() { drop(n + 1) }",
		"off-by-one: drop(n + 2)",
		"assignment: _ = func() { state.n = true }",
		"boolean: state.n = false",
		"comparison: if err == nil {",
	}
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	drawn := mutate.Draw(all, 1, 6)
	moved := slices.Clone(all) // by a line above, and by a function that is there no more
	for i := range moved {
		moved[i].Line++
	}
	again, other := mutate.Draw(moved[1:], 1, 6), mutate.Draw(all, 2, 6)
	same := 0
	for i, m := range drawn {
		if m.Key() == other[i].Key() {
			same++
		}
		if !slices.ContainsFunc(again, func(a mutate.Mutant) bool { return a.Key() == m.Key() }) && m.Key() != all[0].Key() {
			t.Errorf("mutant %d is not drawn again when the source has changed elsewhere", i)
		}
		if want := []string{"one", "two"}[i%2]; m.Package() != want {
			t.Errorf("mutant %d is of %s: packages take turns", i, m.Package())
		}
	}
	if same == len(drawn) {
		t.Error("another seed draws the same")
	}
}

func TestTableCountsWhatIsNoticed(t *testing.T) {
	folder := t.TempDir()
	same := mutate.Mutant{File: "a/x.go", Function: "f", Kind: mutate.Comparison, Before: "a < b", After: "a <= b"}
	if err := os.WriteFile(filepath.Join(folder, "equivalent.txt"), []byte(same.Key()+" # they are never equal\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	reasons, err := mutate.ReadEquivalent(folder)
	if err != nil {
		t.Fatal(err)
	}
	results := []mutate.Result{
		{Mutant: same, Outcome: mutate.Survived},
		{Mutant: mutate.Mutant{File: "a/x.go", Function: "g"}, Outcome: mutate.KilledByUnit, By: "a TestG"},
		{Mutant: mutate.Mutant{File: "a/x.go", Function: "h"}, Outcome: mutate.Survived},
		{Mutant: mutate.Mutant{File: "a/x.go", Function: "i"}, Outcome: mutate.Invalid},
	}
	var b bytes.Buffer
	if err := mutate.WriteTable(&b, results, reasons); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1 of 2 mutants were noticed (50 %)", "| equivalent | a/x.go:0 f |", "they are never equal", "| a | 1 | 0 | 0 | 1 | 0 |"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, b.String())
		}
	}
}
