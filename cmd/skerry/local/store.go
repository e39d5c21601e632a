package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"skerry/cmd/console"
	"skerry/edge/artifacts"
	"skerry/edge/local"
	"skerry/edge/store"
	"skerry/fleet"
)

// StoreCommand is skerry-edge store, the same as skerry local store.
func StoreCommand() *cobra.Command {
	var f localFlags
	c := f.storeCommand()
	f.addLocalFlags(c)
	return c
}

func (f *localFlags) storeCommand() *cobra.Command {
	c := &cobra.Command{Use: "store", Short: "Show and fill this edge's store of artifacts"}
	c.AddCommand(f.storeListCommand(), f.storeLoadCommand(), f.storeRemoveCommand())
	return c
}

func (f *localFlags) storeListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the contents of the store, the most recently used first", Args: cobra.NoArgs,
		Example: `  skerry local store list --data-dir /var/lib/skerry-edge`,
		RunE: f.runLocal(func(ctx context.Context, edge *local.Client, _ []string) error {
			s, err := edge.Store(ctx)
			if err != nil {
				return err
			}
			f.out.Show(s, func() {
				f.out.Line("The store holds %d of %d MiB.", s.Bytes>>20, s.MaxBytes>>20)
				if len(s.Entries) == 0 {
					return
				}
				console.List[store.Listed]{
					Heads: []string{"SOURCE", "SIZE", "SHA256", "SINCE", "LOADED", "NEEDED BY"},
					Row: func(e store.Listed) []any {
						return []any{e.Key.Source, fmt.Sprintf("%d KiB", (e.Size+1023)>>10), e.SHA256[:12], console.LocalTime(e.Stored), e.Loaded,
							neededBy(e)}
					},
				}.Write(&f.out, s.Entries)
			})
			return nil
		}),
	}
}

func (f *localFlags) storeLoadCommand() *cobra.Command {
	var source, checksum string
	c := &cobra.Command{
		Use: "load FILE", Short: "Load a file into the store, so that no task fetches it", Args: cobra.ExactArgs(1),
		Long: `Load a file into the store of this edge, for example from a USB stick. A task whose artifact has that source
then starts without a network. An artifact with the sha256 checksum of the file finds it whatever its source is.`,
		Example: `  skerry local store load --data-dir /var/lib/skerry-edge --source https://example.com/app.tar.gz /media/usb/app.tar.gz`,
		RunE: f.runLocal(func(ctx context.Context, edge *local.Client, args []string) error {
			path, err := filepath.Abs(args[0])
			if err != nil {
				return fmt.Errorf("load %s into the store: %w", args[0], err)
			}
			if source == "" {
				source = path
			}
			parsed, err := artifacts.ParseSource(source, nil)
			if err != nil {
				return err
			}
			key := parsed.Key(nil)
			if key.Checksum != "" && checksum == "" {
				checksum = key.Checksum
			}
			file, err := os.Open(path)
			if err != nil {
				return fleet.Errorf(fleet.CodeInvalid, "load %s into the store: %w", args[0], err).WithHint("name a file that you can read")
			}
			defer file.Close()
			e, err := edge.LoadStore(ctx, key.Source, checksum, filepath.Base(path), file)
			if err != nil {
				return err
			}
			f.out.Say(e, "The store holds %s as %s (%d bytes, sha256 %s).", args[0], e.Key.Source, e.Size, e.SHA256)
			return nil
		}),
	}
	c.Flags().StringVar(&source, "source", "", "source of the job file's artifact (default: the file's own path)")
	c.Flags().StringVar(&checksum, "checksum", "", "checksum that the file must have, such as sha256:HEX")
	return c
}

func (f *localFlags) storeRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "remove SOURCE", Short: "Remove a source from the store, so that it is fetched again", Args: cobra.ExactArgs(1),
		Example: `  skerry local store remove --data-dir /var/lib/skerry-edge https://example.com/app.tar.gz`,
		RunE: f.runLocal(func(ctx context.Context, edge *local.Client, args []string) error {
			r, err := edge.RemoveStored(ctx, args[0])
			if err != nil {
				return err
			}
			if r.Entries == 0 {
				return fleet.Errorf(fleet.CodeNotFound, "the store has no content from %s", args[0]).WithHint("'local store list' shows the sources")
			}
			f.out.Say(r, "%s removed from the store.", console.Count(r.Entries, "entry"))
			return nil
		}),
	}
}

// neededBy counts what keeps a content in the store.
func neededBy(e store.Listed) string {
	allocs, prefetches := 0, 0
	for _, id := range e.Pinned {
		if strings.HasPrefix(string(id), store.PrefetchPin) {
			prefetches++
		} else {
			allocs++
		}
	}
	if prefetches == 0 {
		return console.Count(allocs, "allocation")
	}
	return fmt.Sprintf("%s, %d prefetched", console.Count(allocs, "allocation"), prefetches)
}
