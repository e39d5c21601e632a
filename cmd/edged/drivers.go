package edged

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"skerry/drivers"
	"skerry/drivers/builtin"
	"skerry/edge"
	"skerry/fleet"
)

// addDriverFlags adds the flags of drivers that run programs of this machine.
func (f *Flags) addDriverFlags(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.DeniedDrivers, "driver-denylist", nil, "drivers that this edge does not run, whatever the hubs say, such as raw_exec")
	flags.StringSliceVar(&f.DeniedEnv, "raw-exec-denied-envvars", nil, "variables of the agent's environment that raw_exec tasks do not get")
	flags.StringVar(&f.OCIRuntime, "oci-runtime", "", "program of the OCI runtime of exec and java tasks (default: crun or runc in PATH)")
	flags.StringArrayVar(&f.Chroot, "exec-chroot", nil, "folder of this machine that exec and java tasks see, read-only, PATH or PATH=PATH-IN-TASK; may be repeated (default: /bin, /etc, /lib, /lib32, /lib64, /sbin, /usr)")
	flags.StringSliceVar(&f.Machines.ImagePaths, "qemu-image-path", nil, "folder of this machine whose images qemu tasks may use (default: none, only images in the task's folders); may be repeated or a list with commas")
	flags.StringSliceVar(&f.Machines.AllowedArgs, "qemu-allow-args", nil, "flags that qemu tasks may pass to QEMU in args, such as -device (default: all)")
}

// checkDenylist returns an error if --driver-denylist names a driver that does not exist.
func checkDenylist(denied []string) error {
	for _, name := range denied {
		if !slices.Contains(builtin.Names(), name) {
			return fleet.Errorf(fleet.CodeInvalid, "--driver-denylist names the driver %q, which does not exist", name).
				WithHint("the drivers are %s", strings.Join(builtin.Names(), ", "))
		}
	}
	return nil
}

// chrootFolders reads the values of --exec-chroot. None are nil: the driver's default.
func chrootFolders(values []string) (map[string]string, error) {
	if len(values) == 0 {
		return nil, nil
	}
	folders := make(map[string]string, len(values))
	for _, value := range values {
		from, to, both := strings.Cut(value, "=")
		if !both {
			to = from
		}
		if from == "" || to == "" {
			return nil, fleet.Errorf(fleet.CodeInvalid, "--exec-chroot %q: not PATH or PATH=PATH", value)
		}
		if first, twice := folders[from]; twice {
			return nil, fleet.Errorf(fleet.CodeInvalid, "--exec-chroot %q: tasks see %s at %s already", value, from, first)
		}
		folders[from] = to
	}
	return folders, nil
}

// imageCollector lets each driver remove images that it fetched and that this edge does not need. One goroutine calls it.
type imageCollector struct {
	known    map[string]drivers.Driver
	delay    time.Duration
	failures map[string]string // the last error, by driver: only another one is logged
	log      *slog.Logger
}

func (i *imageCollector) collectImages(ctx context.Context, c edge.ImageCollection) {
	for name, d := range i.known {
		collector, ok := d.(drivers.ImageCollector)
		if !ok {
			continue
		}
		_, err := collector.CollectImages(ctx, drivers.ImageCollection{
			Needed:  func(ctx context.Context) ([]map[string]any, error) { return c.Needed(ctx, name) },
			Elapsed: c.Elapsed, Delay: i.delay, IsShort: c.IsShort,
		})
		if ctx.Err() != nil {
			return
		}
		failure := ""
		if err != nil {
			failure = err.Error()
		}
		if failure != "" && failure != i.failures[name] {
			i.log.Warn("images are not collected: trying again", "driver", name, "error", err)
		}
		i.failures[name] = failure
	}
}
