package report

import (
	"fmt"
	"io"
	"strings"

	"skerry/chaos/history"
)

// maxPrintedViolations bounds how many violations a terminal is shown.
const maxPrintedViolations = 20

// PrintJudgement prints what today's checkers make of an old run, at most 100
// characters wide but for their evidence.
func PrintJudgement(w io.Writer, j history.Judgement) error {
	var b strings.Builder
	paragraph(&b, fmt.Sprintf("%s, seed %d, %s in %s time: %s then", j.Header.Name, j.Header.Seed, stamp(j.Recorded.Lasted), j.Header.Clock, j.Recorded.Outcome))
	if j.CutShort {
		paragraph(&b, "The history was cut short: what only the end of a run shows is not judged.")
	}
	b.WriteString("\n")
	count := map[string]int{}
	t := table{heads: []string{"VERDICT", "INVARIANT", "LOOKED AT", "BROKEN", "UNDECIDED"}, right: []int{2, 3, 4}, wrap: 1}
	for _, v := range j.Verdicts {
		_, _, word := verdictWord(v)
		count[word]++
		t.rows = append(t.rows, []string{word, v.Invariant.Slug(), fmt.Sprint(v.Judged), fmt.Sprint(v.Broken), fmt.Sprint(v.Undecided)})
	}
	t.writeTable(&b)
	for _, v := range j.Found[:min(len(j.Found), maxPrintedViolations)] {
		b.WriteString("\n")
		paragraph(&b, v.String())
		for _, line := range v.Evidence {
			fmt.Fprintf(&b, "    %s\n", printable(line))
		}
	}
	if n := len(j.Found) - maxPrintedViolations; n > 0 {
		fmt.Fprintf(&b, "\nand %d more\n", n)
	}
	fmt.Fprintf(&b, "\n%s\n", verdictCounts(count))
	for _, d := range j.Differs() {
		paragraph(&b, "judged otherwise than then: "+d)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
