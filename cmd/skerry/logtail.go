package main

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"skerry/client"
	"skerry/fleet"
)

// Numbers of a look at an end.
const (
	// tailLines is how many lines are shown where nothing says how many.
	tailLines = 10
	// tailGuess is how many bytes a line is taken to have at first.
	tailGuess = 128
	// tailBound is how many bytes are looked at for lines.
	tailBound = 16 << 20
)

// tailFlags say how much of the end of something is shown.
type tailFlags struct {
	tail         bool
	lines, bytes int64
}

func (f *tailFlags) addTailFlags(c *cobra.Command) {
	c.Flags().BoolVar(&f.tail, "tail", false, fmt.Sprintf("show the end only: %d lines, unless --lines or --bytes says otherwise", tailLines))
	c.Flags().Int64VarP(&f.lines, "lines", "n", 0, "show the last so many lines")
	c.Flags().Int64VarP(&f.bytes, "bytes", "c", 0, "show the last so many bytes")
	c.MarkFlagsMutuallyExclusive("lines", "bytes")
}

// startOffset is how far before the end to begin; -1: at the start. read reads what there is
// now from so far before the end.
func (f *tailFlags) startOffset(read func(before int64) ([]byte, error)) (int64, error) {
	if f.lines < 0 || f.bytes < 0 {
		return 0, fleet.Errorf(fleet.CodeInvalid, "show the end: %d is no number of lines or bytes", min(f.lines, f.bytes))
	}
	switch {
	case f.bytes > 0:
		return f.bytes, nil
	case f.lines > 0:
		return lastLines(f.lines, read)
	case f.tail:
		return lastLines(tailLines, read)
	}
	return -1, nil
}

// lastLines is how many bytes the last lines have.
func lastLines(lines int64, read func(before int64) ([]byte, error)) (int64, error) {
	for before := min(lines, tailBound/tailGuess) * tailGuess; ; before = min(before*4, tailBound) {
		b, err := read(before)
		if err != nil {
			return 0, err
		}
		if at := lineStart(b, lines); at > 0 {
			return int64(len(b) - at), nil
		}
		if int64(len(b)) < before || before == tailBound {
			return int64(len(b)), nil
		}
	}
}

// lineStart is where the last lines begin; 0: there are no more than these. The last
// one may be unfinished.
func lineStart(b []byte, lines int64) int {
	at := len(b)
	if at > 0 && b[at-1] == '\n' {
		at--
	}
	for ; lines > 0; lines-- {
		if at = bytes.LastIndexByte(b[:at], '\n'); at < 0 {
			return 0
		}
	}
	return at + 1
}

// logTail makes a query begin where the flags say, in a task's output.
func (f *tailFlags) logTail(ctx context.Context, hub *client.Client, id fleet.AllocID, q client.LogQuery) (client.LogQuery, error) {
	before, err := f.startOffset(func(before int64) ([]byte, error) {
		out, err := hub.TaskLogs(ctx, id, client.LogQuery{Task: q.Task, Stderr: q.Stderr, FromEnd: true, Offset: before})
		if err != nil {
			return nil, err
		}
		defer out.Close()
		return io.ReadAll(io.LimitReader(out, before))
	})
	if err == nil && before >= 0 {
		q.FromEnd, q.Offset = true, before
	}
	return q, err
}
