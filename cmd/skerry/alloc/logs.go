package alloc

import (
	"bytes"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/client"
	"skerry/cmd/skerry/command"
	"skerry/fleet"
)

func logsCommand(s *command.Session) *cobra.Command {
	var q client.LogQuery
	var tail tailFlags
	var from anyAllocFlags
	c := &cobra.Command{
		Use: "logs ID [TASK]", Short: "Show the logs of a task", Args: cobra.RangeArgs(1, 2),
		Example: `  skerry alloc logs 1d697ed5 backend
  skerry alloc logs -f --stderr --job shop
  skerry alloc logs --tail -n 50 1d697ed5`,
		RunE: s.Run(func(c *command.Call) error {
			if len(c.Args) > 1 {
				if q.Task != "" {
					return fleet.Errorf(fleet.CodeInvalid, "choose a task: two tasks are named, %q and %q", q.Task, c.Args[1])
				}
				q.Task = c.Args[1]
			}
			stub, err := from.chooseAlloc(c, c.Args[0])
			if err != nil {
				return err
			}
			before, err := tail.startOffset(func(before int64) (io.ReadCloser, error) {
				return c.Hub.TaskLogs(c.Context(), stub.ID, client.LogQuery{Task: q.Task, Stderr: q.Stderr, FromEnd: true, Offset: before})
			})
			if err != nil {
				return err
			}
			if before >= 0 {
				q.FromEnd, q.Offset = true, before
			}
			out, err := c.Hub.TaskLogs(c.Context(), stub.ID, q)
			if err != nil {
				return err
			}
			defer out.Close()
			return c.Out.CopyText(c.Context(), out)
		}),
	}
	c.Flags().BoolVarP(&q.Follow, "follow", "f", false, "keep showing new output of the task")
	c.Flags().BoolVar(&q.Stderr, "stderr", false, "show stderr instead of stdout")
	c.Flags().Bool("stdout", false, "show stdout (the default)")
	c.MarkFlagsMutuallyExclusive("stdout", "stderr")
	c.Flags().StringVar(&q.Task, "task", "", "choose the task; same as the argument TASK")
	tail.addTailFlags(c)
	from.addAnyAllocFlags(c)
	return c
}

// anyAllocFlags has --job, with which the argument is a job, and any allocation of it may be used.
type anyAllocFlags struct {
	job   bool
	group string
}

func (f *anyAllocFlags) addAnyAllocFlags(c *cobra.Command) {
	c.Flags().BoolVar(&f.job, "job", false, "ID is that of a job: use one of its allocations, if possible a running one")
	c.Flags().StringVar(&f.group, "group", "", "with --job, use an allocation of this group")
}

// chooseAlloc finds the allocation to use, preferably a running one.
func (f *anyAllocFlags) chooseAlloc(c *command.Call, id string) (api.AllocStub, error) {
	var none api.AllocStub
	if !f.job {
		if f.group != "" {
			return none, fleet.Errorf(fleet.CodeInvalid, "choose an allocation: group %q is named, and no job", f.group).
				WithHint("with --job the id is that of a job")
		}
		return c.FindAlloc(id)
	}
	job, err := c.FindJob(id)
	if err != nil {
		return none, err
	}
	list, err := c.Hub.JobAllocs(c.Context(), job.ID, client.List{})
	if err != nil {
		return none, err
	}
	var best *api.AllocStub
	for i, a := range list {
		switch {
		case f.group != "" && a.TaskGroup != f.group:
		case best == nil, a.ClientStatus == fleet.ClientRunning && best.ClientStatus != fleet.ClientRunning,
			(a.ClientStatus == fleet.ClientRunning) == (best.ClientStatus == fleet.ClientRunning) && a.CreateIndex > best.CreateIndex:
			best = &list[i]
		}
	}
	if best != nil {
		return *best, nil
	}
	what := ""
	if f.group != "" {
		what = " in group " + strconv.Quote(f.group)
	}
	return none, fleet.Errorf(fleet.CodeNotFound, "job %q has no allocation%s", job.ID, what)
}

// Bounds of a search for the last lines of a text.
const (
	// tailLines is the number of lines to show if no flag gives one.
	tailLines = 10
	// tailGuess is the assumed length of a line in bytes.
	tailGuess = 128
	// tailBound is the number of bytes at the end that are searched for lines.
	tailBound = 16 << 20
)

// tailFlags say how much of the end of a text is shown.
type tailFlags struct {
	tail         bool
	lines, bytes int64
}

func (f *tailFlags) addTailFlags(c *cobra.Command) {
	c.Flags().BoolVar(&f.tail, "tail", false, fmt.Sprintf("show only the end: %d lines, unless --lines or --bytes is given", tailLines))
	c.Flags().Int64VarP(&f.lines, "lines", "n", 0, "show this number of lines from the end")
	c.Flags().Int64VarP(&f.bytes, "bytes", "c", 0, "show this number of bytes from the end")
	c.MarkFlagsMutuallyExclusive("lines", "bytes")
}

// startOffset returns how far before the end to begin; -1 means at the start. open opens the present text at a number
// of bytes before its end.
func (f *tailFlags) startOffset(open func(before int64) (io.ReadCloser, error)) (int64, error) {
	if f.lines < 0 || f.bytes < 0 {
		return 0, fleet.Errorf(fleet.CodeInvalid, "show the last lines: %d is not a number of lines or bytes", min(f.lines, f.bytes))
	}
	read := func(before int64) ([]byte, error) {
		out, err := open(before)
		if err != nil {
			return nil, err
		}
		defer out.Close()
		return io.ReadAll(io.LimitReader(out, before))
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

// lastLines returns the length in bytes of the last lines.
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

// lineStart returns the position at which the last lines begin; 0 if there are no more than these. The last line may
// be unfinished.
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
