package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"skerry/cmd/console"
	"skerry/fleet"
)

// allocFS shows what lies in an allocation's folder.
func allocFS(o *operator) *cobra.Command {
	var stat bool
	var tail tailFlags
	var from anyAllocFlags
	var follow bool
	c := &cobra.Command{
		Use: "fs ID [PATH]", Short: "List the files of an allocation, or show a file", Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, stub, err := from.chooseAlloc(cmd.Context(), o, args[0])
			if err != nil {
				return err
			}
			path := "/"
			if len(args) > 1 {
				path = args[1]
			}
			info, err := hub.StatFile(cmd.Context(), stub.ID, path)
			if err != nil {
				return err
			}
			switch {
			case stat:
				return o.writeFiles(cmd.OutOrStdout(), []fleet.FileInfo{info})
			case info.IsDir:
				list, err := hub.ListFiles(cmd.Context(), stub.ID, path)
				if err != nil {
					return err
				}
				return o.writeFiles(cmd.OutOrStdout(), list)
			}
			before, err := tail.startOffset(func(before int64) ([]byte, error) {
				out, err := hub.ReadFile(cmd.Context(), stub.ID, path, info.Size-before)
				if err != nil {
					return nil, err
				}
				defer out.Close()
				return io.ReadAll(io.LimitReader(out, before))
			})
			if err != nil {
				return err
			}
			begin := int64(0)
			if before >= 0 {
				begin = max(info.Size-before, 0)
			}
			if follow {
				return hub.FollowFile(cmd.Context(), cmd.OutOrStdout(), stub.ID, path, begin)
			}
			out, err := hub.ReadFile(cmd.Context(), stub.ID, path, begin)
			if err != nil {
				return err
			}
			defer out.Close()
			_, err = io.Copy(cmd.OutOrStdout(), out)
			return err
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on as the file grows")
	tail.addTailFlags(c)
	from.addAnyAllocFlags(c)
	c.Flags().BoolVar(&stat, "stat", false, "show what kind of file it is, and not its content")
	return c
}

func (o *operator) writeFiles(w io.Writer, list []fleet.FileInfo) error {
	if o.json {
		return console.JSON(w, list)
	}
	t := console.Table{Heads: []string{"MODE", "SIZE", "MODIFIED", "NAME"}}
	for _, f := range list {
		name := f.Name
		if f.IsDir {
			name += "/"
		}
		t.Add(f.FileMode, f.Size, console.LocalTime(f.ModTime), name)
	}
	if err := t.Write(w); err != nil {
		return fmt.Errorf("write the list: %w", err)
	}
	return nil
}
