package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"skerry/api"
	"skerry/cmd/client"
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
		Use: "fs ID [PATH]", Short: "List an allocation's folder, or show a file in it", Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, stub, err := from.chooseAlloc(cmd.Context(), o, args[0])
			if err != nil {
				return err
			}
			q := url.Values{"path": {"/"}}
			if len(args) > 1 {
				q.Set("path", args[1])
			}
			at := func(what string) string { return "/v1/client/fs/" + what + "/" + string(stub.ID) }
			var info fleet.FileInfo
			if _, err := hub.Read(cmd.Context(), at("stat"), q, &info); err != nil {
				return err
			}
			switch {
			case stat:
				return o.writeFiles(cmd.OutOrStdout(), []fleet.FileInfo{info})
			case info.IsDir:
				var list []fleet.FileInfo
				if _, err := hub.Read(cmd.Context(), at("ls"), q, &list); err != nil {
					return err
				}
				return o.writeFiles(cmd.OutOrStdout(), list)
			}
			read := func(offset int64) (io.ReadCloser, error) {
				q.Set("offset", strconv.FormatInt(max(offset, 0), 10))
				return hub.Stream(cmd.Context(), at("readat"), q)
			}
			before, err := tail.startOffset(func(before int64) ([]byte, error) {
				out, err := read(info.Size - before)
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
				q.Set("offset", strconv.FormatInt(begin, 10))
				return followFile(cmd.Context(), cmd.OutOrStdout(), hub, at("stream"), q)
			}
			out, err := read(begin)
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

// followFile writes what a file has and gets. Whoever stops it with an interrupt has seen
// what they wanted.
func followFile(ctx context.Context, w io.Writer, hub *client.Client, path string, q url.Values) error {
	out, err := hub.Stream(ctx, path, q)
	if err != nil {
		return err
	}
	defer out.Close()
	for frames := json.NewDecoder(out); ; {
		var frame api.StreamFrame
		switch err := frames.Decode(&frame); {
		case ctx.Err() != nil, errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("follow a file: %w", err)
		}
		if _, err := w.Write(frame.Data); err != nil {
			return err
		}
	}
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
