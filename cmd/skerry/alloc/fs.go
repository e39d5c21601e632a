package alloc

import (
	"io"

	"github.com/spf13/cobra"

	"skerry/cmd/console"
	"skerry/cmd/skerry/command"
	"skerry/fleet"
)

func fsCommand(s *command.Session) *cobra.Command {
	var stat, follow bool
	var tail tailFlags
	var from anyAllocFlags
	c := &cobra.Command{
		Use: "fs ID [PATH]", Short: "List the files of an allocation, or show a file", Args: cobra.RangeArgs(1, 2),
		Example: `  skerry alloc fs 1d697ed5
  skerry alloc fs 1d697ed5 backend/local/app.conf`,
		RunE: s.Run(func(c *command.Call) error {
			stub, err := from.chooseAlloc(c, c.Args[0])
			if err != nil {
				return err
			}
			path := "/"
			if len(c.Args) > 1 {
				path = c.Args[1]
			}
			info, err := c.Hub.StatFile(c.Context(), stub.ID, path)
			if err != nil {
				return err
			}
			list := []fleet.FileInfo{info}
			if info.IsDir && !stat {
				if list, err = c.Hub.ListFiles(c.Context(), stub.ID, path); err != nil {
					return err
				}
			}
			if info.IsDir || stat {
				c.Out.Show(list, func() { files.Write(c.Out, list) })
				return nil
			}
			before, err := tail.startOffset(func(before int64) (io.ReadCloser, error) {
				return c.Hub.ReadFile(c.Context(), stub.ID, path, info.Size-before)
			})
			if err != nil {
				return err
			}
			begin := int64(0)
			if before >= 0 {
				begin = max(info.Size-before, 0)
			}
			if follow {
				return c.Hub.FollowFile(c.Context(), c.Out, stub.ID, path, begin)
			}
			out, err := c.Hub.ReadFile(c.Context(), stub.ID, path, begin)
			if err != nil {
				return err
			}
			defer out.Close()
			_, err = io.Copy(c.Out, out)
			return err
		}),
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "keep showing new content of the file")
	tail.addTailFlags(c)
	from.addAnyAllocFlags(c)
	c.Flags().BoolVar(&stat, "stat", false, "show the kind, size and time of the file instead of its content")
	return c
}

var files = console.List[fleet.FileInfo]{
	Heads: []string{"MODE", "SIZE", "MODIFIED", "NAME"},
	Row: func(f fleet.FileInfo) []any {
		if f.IsDir {
			f.Name += "/"
		}
		return []any{f.FileMode, f.Size, console.LocalTime(f.ModTime), f.Name}
	},
}
