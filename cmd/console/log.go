package console

import (
	"log/slog"
	"os"

	"github.com/spf13/pflag"

	"skerry/fleet"
)

// LogFlags say what a daemon logs, and how.
type LogFlags struct {
	Level string
	JSON  bool
}

// AddLogFlags adds --log-level and --log-json.
func (f *LogFlags) AddLogFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.Level, "log-level", "info", "lowest level to log: debug, info, warn or error")
	flags.BoolVar(&f.JSON, "log-json", false, "log as JSON")
}

// NewLog makes the logger that the flags ask for.
func (f *LogFlags) NewLog() (*slog.Logger, error) {
	var least slog.Level
	if err := least.UnmarshalText([]byte(f.Level)); err != nil {
		return nil, fleet.Errorf(fleet.CodeInvalid, "read the log level %q: it has to be debug, info, warn or error", f.Level)
	}
	opts := &slog.HandlerOptions{Level: least}
	if f.JSON {
		return slog.New(slog.NewJSONHandler(os.Stderr, opts)), nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, opts)), nil
}
