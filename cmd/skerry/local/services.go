package local

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"skerry/cmd/console"
	"skerry/edge/local"
	"skerry/fleet"
)

func (f *localFlags) servicesCommand() *cobra.Command {
	namespace := ""
	c := &cobra.Command{
		Use: "services [NAME]", Short: "Show the services that this edge knows of, with their addresses", Args: cobra.MaximumNArgs(1),
		Long: `Show the services of this edge's allocations and those of the other edges of its site, or only the service NAME, with
an address for each allocation. Neither DNS nor templates use a service with a failing check.

Without a link this edge tries itself whether the services of its neighbours answer. Those that do not are critical, and
neither DNS nor templates use them. COPY is how old the knowledge of a neighbour's service is.`,
		Example: `  skerry local services --data-dir /var/lib/skerry-edge
  skerry local services --data-dir /var/lib/skerry-edge till`,
		RunE: f.runLocal(func(ctx context.Context, edge *local.Client, args []string) error {
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			list, err := edge.Services(ctx, namespace, name)
			if err != nil {
				return err
			}
			f.out.Show(list, func() {
				console.List[local.Service]{
					None:  "No service runs here, and no neighbour's is known.",
					Heads: []string{"SERVICE", "ADDRESS", "NODE", "ALLOC", "TAGS", "CHECKS", "COPY"},
					Row: func(s local.Service) []any {
						return []any{
							s.ServiceName, fmt.Sprintf("%s:%d", s.Address, s.Port), cmp.Or(s.Neighbour, "this edge"), fleet.Short(s.AllocID),
							strings.Join(s.Tags, ","), checksOf(&s), copyOf(&s),
						}
					},
				}.Write(&f.out, list)
			})
			return nil
		}),
	}
	c.Flags().StringVar(&namespace, "namespace", "", "show only services of this namespace (default: all)")
	return c
}

// checksOf says whether a service may be used.
func checksOf(s *local.Service) string {
	switch {
	case s.Failing != "":
		return fmt.Sprintf("%q fails", s.Failing)
	case s.Critical != "" && s.Since != nil:
		return fmt.Sprintf("critical since %s: %s", console.LocalTime(*s.Since), s.Critical)
	case s.Untried:
		return "not known"
	}
	return "pass"
}

// copyOf says how old the knowledge of a neighbour's service is.
func copyOf(s *local.Service) string {
	switch {
	case s.Neighbour == "":
		return ""
	case s.CopyAge == 0:
		return "up to date"
	}
	return console.Span(s.CopyAge) + " old"
}

func (f *localFlags) checksCommand() *cobra.Command {
	return &cobra.Command{
		Use: "checks [ALLOC]", Short: "Show the results of checks of services", Args: cobra.MaximumNArgs(1),
		Example: `  skerry local checks --data-dir /var/lib/skerry-edge
  skerry local checks --data-dir /var/lib/skerry-edge 1d697ed5`,
		RunE: f.runLocal(func(ctx context.Context, edge *local.Client, args []string) error {
			var alloc fleet.AllocID
			if len(args) > 0 {
				alloc = fleet.AllocID(args[0])
			}
			list, err := edge.Checks(ctx, alloc)
			if err != nil {
				return err
			}
			f.out.Show(list, func() {
				console.List[local.Check]{
					None: "No checks run.", Heads: []string{"ALLOC", "ALLOCATION", "SERVICE", "CHECK", "STATUS", "CHECKED", "OUTPUT"},
					Row: func(c local.Check) []any {
						return []any{fleet.Short(c.Alloc), c.Group, c.Service, c.CheckResult.Check, c.Status, console.LocalNano(c.Timestamp * 1e9), c.Output}
					},
				}.Write(&f.out, list)
			})
			return nil
		}),
	}
}

func (f *localFlags) diskCommand() *cobra.Command {
	return &cobra.Command{
		Use: "disk", Short: "Show the disk of the data directory", Args: cobra.NoArgs,
		Example: `  skerry local disk --data-dir /var/lib/skerry-edge`,
		RunE: f.runLocal(func(ctx context.Context, edge *local.Client, _ []string) error {
			s, err := edge.Status(ctx)
			if err != nil {
				return err
			}
			f.out.Show(s.Disk, func() {
				t := console.NewTable()
				t.Add("Free", fmt.Sprintf("%d MiB", s.Disk.Free>>20))
				t.Add("Reserve", fmt.Sprintf("%d of %d MiB, for starts and the journal while the disk is full", s.Disk.Reserve>>20, s.Disk.Reserved>>20))
				t.Add("Full", s.Disk.Full)
				if why := s.Disk.NoNewAllocs; why != "" {
					t.Add("New allocations", "wait: "+why)
				}
				f.out.Table(t)
			})
			return nil
		}),
	}
}
