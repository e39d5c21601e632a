// Command measure says how the source reads: names, documentation, imports and size. `make
// measure` prints the figures; `make lint` runs it with --check, which compares the figures of
// each package with the ceilings recorded in internal/measure/ceilings.txt. A ceiling only goes
// down: --record writes those figures that have become better.
//
// It reads Go files below the working directory as text and syntax, starts no goroutine, and
// writes ceilings.txt alone, with --record.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

const ceilingsFile = "internal/measure/ceilings.txt"

func main() {
	check := flag.Bool("check", false, "compare each package with its recorded ceiling")
	record := flag.Bool("record", false, "record what has become better")
	flag.Parse()
	if err := run(os.Stdout, *check, *record); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, check, record bool) error {
	source, err := readSource(".")
	if err != nil {
		return err
	}
	switch {
	case record:
		return recordCeilings(ceilingsFile, source.packageFigures())
	case check:
		subjects, err := commitSubjects(checkedCommits)
		return errors.Join(err, checkSubjects(subjects), checkCeilings(ceilingsFile, source.packageFigures()))
	}
	return source.writeReport(out)
}
