package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry/chaos/history"
	"skerry/chaos/report"
	"skerry/chaos/virtual"
	"skerry/cmd/console"
)

// absenceCommand is the command `sim absence`.
func absenceCommand() *cobra.Command {
	a := virtual.Absence{Days: 400, Together: 48 * time.Hour, FailEvery: 3 * time.Hour, BackoffCap: time.Hour}
	var folder string
	c := &cobra.Command{
		Use: "absence", Args: cobra.NoArgs,
		Short: "Play an absence of 400 days in virtual time: reboots, power cuts, 1970, certificates that ended",
		Long: `Play an absence of 400 days in virtual time.

An edge loses its link while it works. The hubs and the other edges go on for a while, and are then
put away until the day on which it is let back. Meanwhile its machine reboots every few weeks, loses
its power, wakes up in 1970 and in 2100, and its certificate ends. Nobody helps it back; everything
that happened is then at the hubs, once and in order.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runAbsence(a, folder, cmd.OutOrStdout()) },
	}
	f := c.Flags()
	f.IntVar(&a.Days, "days", a.Days, "how long it is away")
	f.DurationVar(&a.Together, "together", a.Together, "how long hubs and other edges go on without it, at most 100 h")
	f.DurationVar(&a.FailEvery, "fail-every", a.FailEvery, "how often one of its tasks fails")
	f.DurationVar(&a.BackoffCap, "backoff-cap", a.BackoffCap, "its longest pause between rounds of dialing (in production 1m, which costs most of the time that 400 days take)")
	f.Int64Var(&a.JournalMaxBytes, "journal-max-bytes", 0, "bound of its journal (default 64 MiB)")
	f.Uint64Var(&a.Seed, "seed", 1, "of the times at which something happens to it")
	f.StringVar(&folder, "report", "chaos-report", "folder for the history and its page")
	return c
}

// runAbsence plays one, and ends the program: a bubble of virtual time wants that.
func runAbsence(a virtual.Absence, folder string, out io.Writer) error {
	if a.Days < 1 || a.Together < 0 || a.Together > 100*time.Hour || a.FailEvery < time.Minute {
		return errors.New("an absence lasts a day at least; its tasks fail once a minute at most; and the others go on for 100 h at most")
	}
	a.Repeat, a.LogLevel = "skerry-chaos "+strings.Join(os.Args[1:], " "), slog.LevelInfo
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("make the report's folder: %w", err)
	}
	var err error
	if a.Dir, err = os.MkdirTemp(memoryFolder(), "skerry-absence-"); err != nil {
		return fmt.Errorf("make the run's folder: %w", err)
	}
	path := filepath.Join(folder, "absence.jsonl")
	virtual.Main(func() error {
		err := recordAbsence(a, path, out)
		if err == nil {
			err = report.DrawRun(path, filepath.Join(folder, "absence.html"), "")
		}
		if err != nil {
			return fmt.Errorf("skerry-chaos: %w\nall files of the run are kept in %s", err, a.Dir)
		}
		return os.RemoveAll(a.Dir)
	})
	return nil
}

// memoryFolder is a folder whose files lie in memory; "" where the system has none.
func memoryFolder() string {
	if fi, err := os.Stat("/dev/shm"); err == nil && fi.IsDir() {
		return "/dev/shm"
	}
	return ""
}

// recordAbsence plays an absence with its history kept at path.
func recordAbsence(a virtual.Absence, path string, out io.Writer) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("keep the history: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	a.History = f
	o, err := a.Run(context.Background(), virtual.NewWallClock())
	if err != nil {
		return err
	}
	if err := writeAbsence(out, o); err != nil {
		return err
	}
	if o.Run.Outcome != history.Pass {
		return fmt.Errorf("play an absence: %s: %d violations", o.Run.Outcome, len(o.Found))
	}
	return nil
}

func writeAbsence(w io.Writer, o virtual.AbsenceOutcome) error {
	t := console.Table{}
	days := uint64(max(1, o.Alone/(24*time.Hour)))
	t.Add("Away", fmt.Sprintf("%s, alone for %s of it", console.Span(o.Away), console.Span(o.Alone)))
	t.Add("Machine", fmt.Sprintf("%d boots, off for %s: %s", o.Boots, console.Span(o.Off), strings.Join(o.Troubles, ", ")))
	t.Add("Certificate", certificateLine(o))
	t.Add("Back", fmt.Sprintf("within %s: everything is told, and settled", console.Span(o.Rejoin)))
	t.Add("Journal", fmt.Sprintf("%d rows, each applied once and in order; %d dropped at the bound, and counted; %d KiB at most",
		o.Rows, o.Dropped, o.JournalBytes>>10))
	t.Add("Written", fmt.Sprintf("%d KiB a day, with the log", o.Written>>10/days))
	for _, job := range slices.Sorted(maps.Keys(o.Up)) {
		t.Add("Task "+string(job), fmt.Sprintf("ran for %s of %s that the machine was on", console.Span(o.Up[job]), console.Span(o.Alone-o.Off)))
	}
	t.Add("Took", fmt.Sprintf("%s, %s of it alone", o.Run.Wall.Round(time.Millisecond), o.AloneWall.Round(time.Millisecond)))
	t.Add("Outcome", string(o.Run.Outcome))
	for _, v := range o.Found {
		t.Add("Violation", v.String())
	}
	return t.Write(w)
}

func certificateLine(o virtual.AbsenceOutcome) string {
	if !o.Back.After(o.CertificateAtFirst) {
		return fmt.Sprintf("valid until %s", o.CertificateAtLast.Format(time.DateOnly))
	}
	return fmt.Sprintf("ended %s before it was back; the new one is valid until %s",
		console.Span(o.Back.Sub(o.CertificateAtFirst)), o.CertificateAtLast.Format(time.DateOnly))
}
