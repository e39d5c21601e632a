package schedule

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"skerry/fleet"
)

// attribute is one attribute of a job, an edge or a pool in a scenario: a word that
// stands alone, or NAME=VALUE.
type attribute[T any] struct {
	name string
	word bool
	read func(t *T, value string) error
	// write gives the value as it is read, "" where it is not set.
	write func(t T) string
}

// setAttribute reads one word of a line into t.
func setAttribute[T any](attributes []attribute[T], t *T, text string) error {
	name, value, valued := strings.Cut(text, "=")
	var names []string
	for _, a := range attributes {
		if a.name != name {
			names = append(names, a.name)
			continue
		}
		switch {
		case a.word && valued:
			return fmt.Errorf("%s stands alone, without a value", name)
		case !a.word && (!valued || value == ""):
			return fmt.Errorf("%s needs a value: %s=…", name, name)
		}
		if err := a.read(t, value); err != nil {
			return fmt.Errorf("%s %w", name, err)
		}
		return nil
	}
	return newUnknownError("attribute", name, names)
}

// formatAttributes writes what is set, in the order of the list.
func formatAttributes[T any](attributes []attribute[T], t T) string {
	var b strings.Builder
	for _, a := range attributes {
		v := a.write(t)
		switch {
		case v == "":
		case a.word:
			b.WriteString(" " + a.name)
		default:
			b.WriteString(" " + a.name + "=" + v)
		}
	}
	return b.String()
}

func textAttribute[T any](name string, field func(*T) *string) attribute[T] {
	return attribute[T]{
		name:  name,
		read:  func(t *T, v string) error { *field(t) = v; return checkLabel(v) },
		write: func(t T) string { return *field(&t) },
	}
}

func countAttribute[T any](name string, most int, field func(*T) *int) attribute[T] {
	return attribute[T]{
		name: name,
		read: func(t *T, v string) (err error) { *field(t), err = parseCount(v, 0, most); return err },
		write: func(t T) string {
			if n := *field(&t); n != 0 {
				return strconv.Itoa(n)
			}
			return ""
		},
	}
}

func timeAttribute[T any](name string, field func(*T) *time.Duration) attribute[T] {
	return attribute[T]{
		name: name,
		read: func(t *T, v string) (err error) { *field(t), err = parseDuration(v, 0, longest); return err },
		write: func(t T) string {
			if d := *field(&t); d != 0 {
				return formatDuration(d)
			}
			return ""
		},
	}
}

func wordAttribute[T any](name string, field func(*T) *bool) attribute[T] {
	return attribute[T]{
		name: name, word: true,
		read: func(t *T, _ string) error { *field(t) = true; return nil },
		write: func(t T) string {
			if *field(&t) {
				return "yes"
			}
			return ""
		},
	}
}

const (
	mostCPU    = 1_000_000
	mostMemory = 10_000_000
	// Bounds of an edge's journal, in KiB.
	leastJournal, mostJournal = 16, 1 << 20
)

var edgeAttributes = []attribute[Edge]{
	textAttribute("site", func(e *Edge) *string { return &e.Site }),
	textAttribute("dc", func(e *Edge) *string { return &e.Datacenter }),
	textAttribute("pool", func(e *Edge) *string { return &e.Pool }),
	textAttribute("link", func(e *Edge) *string { return (*string)(&e.Link) }),
	countAttribute("cpu", mostCPU, func(e *Edge) *int { return &e.CPU }),
	countAttribute("memory", mostMemory, func(e *Edge) *int { return &e.MemoryMB }),
	countAttribute("journal", mostJournal, func(e *Edge) *int { return &e.JournalKiB }),
}

var poolAttributes = []attribute[Pool]{
	textAttribute("disconnect", func(p *Pool) *string { return &p.Disconnect }),
	timeAttribute("ttl", func(p *Pool) *time.Duration { return &p.TTL }),
}

// startAttribute is the only one of a job with a job file.
var startAttribute = timeAttribute("start", func(j *Job) *time.Duration { return &j.Start })

var jobAttributes = []attribute[Job]{
	countAttribute("count", fleet.JobCountMax, func(j *Job) *int { return &j.Count }),
	startAttribute,
	datacentersAttribute,
	textAttribute("pool", func(j *Job) *string { return &j.Pool }),
	textAttribute("site", func(j *Job) *string { return &j.Site }),
	wordAttribute("distinct", func(j *Job) *bool { return &j.Distinct }),
	countAttribute("cpu", mostCPU, func(j *Job) *int { return &j.CPU }),
	countAttribute("memory", mostMemory, func(j *Job) *int { return &j.MemoryMB }),
	countAttribute("port", 65535, func(j *Job) *int { return &j.Port }),
	countAttribute("ports", 20, func(j *Job) *int { return &j.Ports }),
	countAttribute("cores", 64, func(j *Job) *int { return &j.Cores }),
	countAttribute("devices", 64, func(j *Job) *int { return &j.Devices }),
	timeAttribute("max_run_duration", func(j *Job) *time.Duration { return &j.MaxRun }),
	bareDisconnect,
	disconnectTime("lost_after", func(d *fleet.Disconnect) **time.Duration { return &d.LostAfter }),
	disconnectTime("stop_on_client_after", func(d *fleet.Disconnect) **time.Duration { return &d.StopOnClientAfter }),
	replaceAttribute,
	reconcileAttribute,
	restartAttribute,
	rescheduleAttribute,
	countAttribute("max_parallel", fleet.JobCountMax, func(j *Job) *int { return &j.Rollout.MaxParallel }),
	timeAttribute("min_healthy_time", func(j *Job) *time.Duration { return &j.Rollout.MinHealthy }),
	countAttribute("canary", fleet.JobCountMax, func(j *Job) *int { return &j.Rollout.Canary }),
	wordAttribute("auto_promote", func(j *Job) *bool { return &j.Rollout.AutoPromote }),
	wordAttribute("auto_revert", func(j *Job) *bool { return &j.Rollout.AutoRevert }),
	countAttribute("max_unavailable_per_site", fleet.JobCountMax, func(j *Job) *int { return &j.Rollout.MaxPerSite }),
	waitForAttribute,
	timeAttribute("window_every", func(j *Job) *time.Duration { return &j.Rollout.WindowEvery }),
	timeAttribute("window_for", func(j *Job) *time.Duration { return &j.Rollout.WindowFor }),
	wordAttribute("serves", func(j *Job) *bool { return &j.Serves }),
	timeAttribute("every", func(j *Job) *time.Duration { return &j.Every }),
	wordAttribute("prohibit_overlap", func(j *Job) *bool { return &j.NoOverlap }),
	timeAttribute("run_for", func(j *Job) *time.Duration { return &j.Task.RunFor }),
	countAttribute("exit_code", 255, func(j *Job) *int { return &j.Task.ExitCode }),
	timeAttribute("start_delay", func(j *Job) *time.Duration { return &j.Task.StartDelay }),
	textAttribute("start_error", func(j *Job) *string { return &j.Task.StartError }),
	timeAttribute("kill_after", func(j *Job) *time.Duration { return &j.Task.KillAfter }),
	wordAttribute("ignore_signals", func(j *Job) *bool { return &j.Task.IgnoreSignals }),
	timeAttribute("kill_timeout", func(j *Job) *time.Duration { return &j.KillTimeout }),
}

var datacentersAttribute = attribute[Job]{
	name: "dc",
	read: func(j *Job, v string) error {
		j.Datacenters = strings.Split(v, ",")
		for _, dc := range j.Datacenters {
			if err := checkLabel(strings.ReplaceAll(dc, "*", "x")); err != nil {
				return err
			}
		}
		return nil
	},
	write: func(j Job) string { return strings.Join(j.Datacenters, ",") },
}

// disconnectOf makes the block where there is none.
func disconnectOf(j *Job) *fleet.Disconnect {
	if j.Disconnect == nil {
		j.Disconnect = &fleet.Disconnect{}
	}
	return j.Disconnect
}

// bareDisconnect is a block in which nothing is said.
var bareDisconnect = attribute[Job]{
	name: "disconnect", word: true,
	read: func(j *Job, _ string) error { disconnectOf(j); return nil },
	write: func(j Job) string {
		if j.Disconnect != nil && *j.Disconnect == (fleet.Disconnect{}) {
			return "yes"
		}
		return ""
	},
}

func disconnectTime(name string, field func(*fleet.Disconnect) **time.Duration) attribute[Job] {
	return attribute[Job]{
		name: name,
		read: func(j *Job, v string) error {
			d, err := parseDuration(v, 0, longest)
			*field(disconnectOf(j)) = &d
			return err
		},
		write: func(j Job) string {
			if j.Disconnect == nil || *field(j.Disconnect) == nil {
				return ""
			}
			return formatDuration(**field(j.Disconnect))
		},
	}
}

var replaceAttribute = attribute[Job]{
	name: "replace",
	read: func(j *Job, v string) error {
		if v != "yes" && v != "no" {
			return fmt.Errorf("is yes or no, not %q", v)
		}
		yes := v == "yes"
		disconnectOf(j).Replace = &yes
		return nil
	},
	write: func(j Job) string {
		switch {
		case j.Disconnect == nil || j.Disconnect.Replace == nil:
			return ""
		case *j.Disconnect.Replace:
			return "yes"
		}
		return "no"
	},
}

var reconcileAttribute = attribute[Job]{
	name: "reconcile",
	read: func(j *Job, v string) error { disconnectOf(j).Reconcile = v; return checkLabel(v) },
	write: func(j Job) string {
		if j.Disconnect == nil {
			return ""
		}
		return j.Disconnect.Reconcile
	},
}

var waitForAttribute = attribute[Job]{
	name: "wait_for",
	read: func(j *Job, v string) error {
		j.Rollout.WaitFor = v
		if _, _, ok := (fleet.Update{WaitFor: v}).WaitShare(); !ok || strings.ContainsFunc(v, isSpace) {
			return fmt.Errorf("is reachable, all or a percentage (95%%), not %q", v)
		}
		return nil
	},
	write: func(j Job) string { return j.Rollout.WaitFor },
}

// isSpace reports what would be no part of a word.
func isSpace(r rune) bool { return r == '#' || unicode.IsSpace(r) }

var errRestart = errors.New("is ATTEMPTS/INTERVAL/DELAY/MODE: restart=3/10m/15s/delay")

var restartAttribute = attribute[Job]{
	name: "restart",
	read: func(j *Job, v string) (err error) {
		parts := strings.Split(v, "/")
		if len(parts) != 4 {
			return errRestart
		}
		p := fleet.RestartPolicy{Mode: parts[3]}
		p.Attempts, err = parseCount(parts[0], 0, 1_000_000)
		interval, err1 := parseDuration(parts[1], 0, longest)
		delay, err2 := parseDuration(parts[2], 0, longest)
		p.Interval, p.Delay = interval, delay
		j.Restart = &p
		return errors.Join(err, err1, err2)
	},
	write: func(j Job) string {
		p := j.Restart
		if p == nil {
			return ""
		}
		return fmt.Sprintf("%d/%s/%s/%s", p.Attempts, formatDuration(p.Interval), formatDuration(p.Delay), p.Mode)
	},
}
