package edged

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"skerry/drivers"
	"skerry/edge"
)

// collectingDriver is a driver that only collects images.
type collectingDriver struct {
	drivers.Driver
	collect func(ctx context.Context, c drivers.ImageCollection) ([]string, error)
}

// CollectImages implements drivers.ImageCollector.
func (d collectingDriver) CollectImages(ctx context.Context, c drivers.ImageCollection) ([]string, error) {
	return d.collect(ctx, c)
}

// TestImagesAreCollectedByEachDriver: a driver is asked for its own images, and an error is logged once.
func TestImagesAreCollectedByEachDriver(t *testing.T) {
	var log strings.Builder
	var needed []string
	fail := map[string]error{"docker": errors.New("the daemon hangs")}
	known := map[string]drivers.Driver{"raw_exec": struct{ drivers.Driver }{}}
	for _, name := range []string{"docker", "podman"} {
		known[name] = collectingDriver{collect: func(ctx context.Context, c drivers.ImageCollection) ([]string, error) {
			if c.Delay != time.Hour || c.Elapsed != time.Minute || !c.IsShort("/images") {
				t.Errorf("%s: %+v", name, c)
			}
			_, err := c.Needed(ctx)
			return nil, errors.Join(err, fail[name])
		}}
	}
	i := &imageCollector{known: known, delay: time.Hour, failures: map[string]string{}, log: slog.New(slog.NewTextHandler(&log, nil))}
	for range 2 {
		i.collectImages(t.Context(), edge.ImageCollection{
			Elapsed: time.Minute, IsShort: func(dir string) bool { return dir == "/images" },
			Needed: func(_ context.Context, driver string) ([]map[string]any, error) {
				needed = append(needed, driver)
				return nil, nil
			},
		})
	}
	if slices.Sort(needed); !slices.Equal(needed, []string{"docker", "docker", "podman", "podman"}) {
		t.Errorf("needed images of %q", needed)
	}
	if n := strings.Count(log.String(), "the daemon hangs"); n != 1 {
		t.Errorf("the error is logged %d times: %s", n, log.String())
	}
}

func TestImageDelayIsChecked(t *testing.T) {
	var f Flags
	flags := pflag.NewFlagSet("edge", pflag.ContinueOnError)
	f.Add(flags)
	if err := flags.Parse([]string{"--data-dir=" + t.TempDir(), "--docker-image-delay=-1s"}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.EdgeConfig(slog.New(slog.DiscardHandler), "1"); err == nil || !strings.Contains(err.Error(), "--docker-image-delay") {
		t.Errorf("a negative delay: %v", err)
	}
}
