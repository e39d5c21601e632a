package main

import (
	"fmt"
	"io"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"skerry/cmd/console"
	"skerry/hub/api"
)

// allocFS shows what lies in an allocation's folder.
func allocFS(o *operator) *cobra.Command {
	var stat bool
	var tail int64
	c := &cobra.Command{
		Use: "fs ID [PATH]", Short: "List an allocation's folder, or show a file in it", Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, stub, err := o.alloc(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			q := url.Values{"path": {"/"}}
			if len(args) > 1 {
				q.Set("path", args[1])
			}
			at := func(what string) string { return "/v1/client/fs/" + what + "/" + string(stub.ID) }
			var info api.FileInfo
			if _, err := hub.Read(cmd.Context(), at("stat"), q, &info); err != nil {
				return err
			}
			switch {
			case stat:
				return o.writeFiles(cmd.OutOrStdout(), []api.FileInfo{info})
			case info.IsDir:
				var list []api.FileInfo
				if _, err := hub.Read(cmd.Context(), at("ls"), q, &list); err != nil {
					return err
				}
				return o.writeFiles(cmd.OutOrStdout(), list)
			}
			if tail > 0 {
				q.Set("offset", strconv.FormatInt(max(info.Size-tail, 0), 10))
			}
			out, err := hub.Stream(cmd.Context(), at("readat"), q)
			if err != nil {
				return err
			}
			defer out.Close()
			_, err = io.Copy(cmd.OutOrStdout(), out)
			return err
		},
	}
	c.Flags().BoolVar(&stat, "stat", false, "show what kind of file it is, and not its content")
	c.Flags().Int64Var(&tail, "tail", 0, "show the last so many bytes of a file")
	return c
}

func (o *operator) writeFiles(w io.Writer, list []api.FileInfo) error {
	if o.json {
		return console.JSON(w, list)
	}
	t := console.Table{Heads: []string{"MODE", "SIZE", "MODIFIED", "NAME"}}
	for _, f := range list {
		name := f.Name
		if f.IsDir {
			name += "/"
		}
		t.Add(f.FileMode, f.Size, f.ModTime.Local().Format("2006-01-02 15:04:05"), name)
	}
	if err := t.Write(w); err != nil {
		return fmt.Errorf("write the list: %w", err)
	}
	return nil
}
