package runner_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"skerry/drivers"
	"skerry/edge/runner"
	"skerry/fleet"
)

func TestDecide(t *testing.T) {
	const (
		service = true
		batch   = false
		s       = time.Second
		m       = time.Minute
	)
	policy := func(attempts int, interval, delay time.Duration, mode string) fleet.RestartPolicy {
		return fleet.RestartPolicy{Attempts: attempts, Interval: interval, Delay: delay, Mode: mode}
	}
	fail, wait := policy(2, 30*m, 15*s, "fail"), policy(3, 10*m, m, "delay")
	none := policy(0, 30*m, 15*s, "fail")
	broken, ok := drivers.Exit{Code: 1}, drivers.Exit{}
	again, never := drivers.Recoverable(errors.New("no memory")), errors.New("no such command")

	for _, tc := range []struct {
		name     string
		policy   fleet.RestartPolicy
		start    time.Duration // of the window
		count    int
		startErr error
		exit     drivers.Exit
		always   bool
		now      time.Duration
		jitter   float64

		action    string
		delay     time.Duration
		wantStart time.Duration
		wantCount int
	}{
		{"first failure", fail, 0, 0, nil, broken, service, m, 0, "restart", 15 * s, 0, 1},
		{"jitter adds to a quarter", fail, 0, 0, nil, broken, service, m, 0.5, "restart", 15*s + 1875*time.Millisecond, 0, 1},
		{"last attempt", fail, 0, 1, nil, broken, service, m, 0, "restart", 15 * s, 0, 2},
		{"attempts used up", fail, 0, 2, nil, broken, service, m, 0, "fail", 0, 0, 3},
		{"just before the interval's end", fail, 0, 2, nil, broken, service, 30*m - 1, 0, "fail", 0, 0, 3},
		{"at the interval's end", fail, 0, 2, nil, broken, service, 30 * m, 0, "restart", 15 * s, 30 * m, 1},
		{"delay mode, just after its wait", wait, 0, 4, nil, broken, service, 10 * m, 0, "restart", m, 10 * m, 1},
		{"delay mode, within", wait, 0, 2, nil, broken, service, 4 * m, 0, "restart", m, 0, 3},
		{"delay mode, used up", wait, 0, 3, nil, broken, service, 4 * m, 0.9, "restart", 6 * m, 0, 4},
		{"delay mode, used up, window of later", wait, 2 * m, 3, nil, broken, service, 4 * m, 0, "restart", 8 * m, 2 * m, 4},
		{"service success is restarted", fail, 0, 0, nil, ok, service, m, 0, "restart", 15 * s, 0, 1},
		{"service success can use up attempts", fail, 0, 2, nil, ok, service, m, 0, "fail", 0, 0, 3},
		{"batch success", fail, 0, 0, nil, ok, batch, m, 0, "complete", 0, 0, 0},
		{"batch success when attempts are used up", fail, 0, 2, nil, ok, batch, m, 0, "complete", 0, 0, 2},
		{"batch failure", fail, 0, 0, nil, broken, batch, m, 0, "restart", 15 * s, 0, 1},
		{"no attempts: service success fails", none, 0, 0, nil, ok, service, m, 0, "fail", 0, 0, 0},
		{"no attempts: service failure", none, 0, 0, nil, broken, service, m, 0, "fail", 0, 0, 0},
		{"no attempts: batch success", none, 0, 0, nil, ok, batch, m, 0, "complete", 0, 0, 0},
		{"no attempts: batch failure", none, 0, 0, nil, broken, batch, m, 0, "fail", 0, 0, 0},
		{"killed by a signal", fail, 0, 0, nil, drivers.Exit{Signal: 9, Code: 137}, batch, m, 0, "restart", 15 * s, 0, 1},
		{"exit lost", fail, 0, 0, nil, drivers.Exit{Err: "lost"}, batch, m, 0, "restart", 15 * s, 0, 1},
		{"start failed, may work later", fail, 0, 0, again, ok, batch, m, 0, "restart", 15 * s, 0, 1},
		{"start failed, used up", fail, 0, 2, again, ok, batch, m, 0, "fail", 0, 0, 3},
		{"start failed for good", fail, 0, 0, never, ok, service, m, 0, "fail", 0, 0, 1},
		{"start failed for good, delay mode", wait, 0, 0, never, ok, service, m, 0, "fail", 0, 0, 1},
		{"window of an earlier boot", fail, -29 * m, 2, nil, broken, service, 30 * s, 0, "fail", 0, -29 * m, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			action, delay, start, count := runner.Decide(tc.policy, tc.start, tc.count, tc.startErr, tc.exit, tc.always, tc.now, tc.jitter)
			if action != tc.action || delay != tc.delay || start != tc.wantStart || count != tc.wantCount {
				t.Errorf("got %s after %v, window %d from %v; want %s after %v, window %d from %v",
					action, delay, count, start, tc.action, tc.delay, tc.wantCount, tc.wantStart)
			}
		})
	}
}

func TestRebase(t *testing.T) {
	// 20 minutes of the window had passed when the machine went down, and 5 s after the boot they still have.
	if got := runner.Rebase(time.Hour, 80*time.Minute, 5*time.Second); got != 5*time.Second-20*time.Minute {
		t.Errorf("window starts at %v", got)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"version":1,"boot_id":"b","mono":5,"attempt":3,"restarts":2,"window":{"start":1,"count":2},` +
		`"handle":{"Driver":"raw_exec","Version":1,"TaskID":"a/b/3","State":"e30="},"started":4,"restarting":"x","ended":true,"due":9}`))
	f.Add([]byte(`{"version":2,"attempt":1}`))
	f.Add([]byte(`{"version":1,"attempt":0}`))
	f.Add([]byte(`{"version":1,"attempt":1,"window":{"count":-1}}`))
	f.Add([]byte(``))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		once, err := runner.RoundTripRecord(b)
		if err != nil {
			return
		}
		twice, err := runner.RoundTripRecord(once)
		if err != nil || string(once) != string(twice) {
			t.Errorf("%q became %q, then %q, %v", b, once, twice, err)
		}
	})
}

func TestDecodeRun(t *testing.T) {
	for record, want := range map[string]time.Duration{
		`{"version":1,"boot_id":"b","mono":60000000000,"begun":20000000000}`:  40 * time.Second,
		`{"version":1,"boot_id":"b","mono":60000000000,"begun":-20000000000}`: 80 * time.Second, // of an earlier boot
		`{"version":1,"boot_id":"b","mono":20000000000,"begun":60000000000}`:  -1,               // it would run 40 s too long
		`{"version":1,"boot_id":"b","mono":-5,"begun":-7}`:                    -1,
		`{"version":1,"boot_id":"b","mono":5,"begun":-9000000000000000000}`:   -1,
		`{"version":9,"boot_id":"b","mono":5,"begun":5}`:                      -1,
		`{`: -1,
		`{"version":1,"boot_id":"` + strings.Repeat("b", 2<<10) + `"}`: -1,
	} {
		if got, err := runner.DecodeRun([]byte(record)); (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%.80s: ran for %s, %v, want %s", record, got, err, want)
		}
	}
}

func FuzzDecodeRun(f *testing.F) {
	f.Add([]byte(`{"version":1,"boot_id":"b","mono":60000000000,"begun":-20000000000}`))
	f.Add([]byte(`{"version":1,"mono":9223372036854775807,"begun":-9223372036854775808}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if ran, err := runner.DecodeRun(b); err == nil && ran < 0 {
			t.Errorf("%q: it ran for %s", b, ran)
		}
	})
}
