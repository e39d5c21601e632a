package fingerprint_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skerry/drivers"
	"skerry/edge/fingerprint"
	"skerry/fleet"
)

// daemonDriver is a driver whose daemon may be away.
type daemonDriver struct {
	drivers.Driver
	info atomic.Pointer[fleet.DriverInfo]
}

func (d *daemonDriver) Fingerprint(context.Context) fleet.DriverInfo { return *d.info.Load() }

// A driver whose daemon hangs or comes back is noticed soon, and one that is away for a moment is not.
func TestDriverChangesAreSeenSoon(t *testing.T) {
	healthy := &fleet.DriverInfo{Detected: true, Healthy: true}
	for name, gone := range map[string]*fleet.DriverInfo{"it hangs": {Detected: true}, "its socket is gone": {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &daemonDriver{}
				d.info.Store(healthy)
				f := mustNew(t, func(cfg *fingerprint.Config) {
					cfg.Drivers, cfg.Interval = map[string]drivers.Driver{"docker": d}, time.Minute
				})
				mustRead(t, f)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- f.Run(ctx) }()
				after := func(wait time.Duration, info *fleet.DriverInfo, want bool) {
					t.Helper()
					d.info.Store(info)
					time.Sleep(wait)
					synctest.Wait()
					if got := f.Node().Drivers["docker"].Healthy; got != want {
						t.Errorf("healthy is %v at %s, want %v", got, time.Now().Format(time.TimeOnly), want)
					}
				}
				after(61*time.Second, gone, true) // one reading has seen it
				after(5*time.Second, healthy, true)
				after(50*time.Second, healthy, true)
				after(71*time.Second, gone, false)
				after(71*time.Second, healthy, true)
				if gone.Detected { // readings are frequent while it is unhealthy
					after(71*time.Second, gone, false)
					after(21*time.Second, healthy, true)
				}
				cancel()
				if err := <-done; err != nil {
					t.Errorf("Run: %v", err)
				}
			})
		})
	}
}

// A denied driver is not offered, though it works, and the node says why.
func TestDeniedDriver(t *testing.T) {
	works := &daemonDriver{}
	works.info.Store(&fleet.DriverInfo{Detected: true, Healthy: true})
	f := mustNew(t, func(cfg *fingerprint.Config) {
		cfg.Drivers, cfg.Denied = map[string]drivers.Driver{"docker": works, "raw_exec": works}, []string{"raw_exec"}
	})
	mustRead(t, f)
	n := f.Node()
	if d := n.Drivers["raw_exec"]; d.Detected || d.Healthy || d.HealthDescription != "denied by --driver-denylist of this edge" {
		t.Errorf("the denied driver is %+v", d)
	}
	if n.Attributes["driver.raw_exec"] != "" || n.Attributes["driver.docker"] != "1" {
		t.Errorf("attributes %v", n.Attributes)
	}
}

// A Consul agent, or a Vault, that begins to answer is noticed soon.
func TestConsulIsSeenSoon(t *testing.T) {
	mustSeeSoon(t, (*fleet.Node).HasConsul, fleet.AttributeConsulVersion, func(cfg *fingerprint.Config, read func(context.Context) map[string]string) { cfg.Consul = read })
	mustSeeSoon(t, (*fleet.Node).HasVault, fleet.AttributeVaultVersion, func(cfg *fingerprint.Config, read func(context.Context) map[string]string) { cfg.Vault = read })
}

// mustSeeSoon checks that an attribute which its source does not have at first is noticed soon.
func mustSeeSoon(t *testing.T, has func(*fleet.Node) bool, attribute string, set func(cfg *fingerprint.Config, read func(context.Context) map[string]string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var there atomic.Bool
		f := mustNew(t, func(cfg *fingerprint.Config) {
			cfg.Interval = time.Minute
			set(cfg, func(context.Context) map[string]string {
				if there.Load() {
					return map[string]string{attribute: "1.21.0"}
				}
				return nil
			})
		})
		if n := mustRead(t, f); has(&n) {
			t.Errorf("attributes %v", n.Attributes)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		there.Store(true)
		time.Sleep(21 * time.Second)
		synctest.Wait()
		if n := f.Node(); !has(&n) {
			t.Errorf("after 21 s: %v", n.Attributes)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// hangingDriver is a driver whose daemon answers after a minute.
type hangingDriver struct{ drivers.Driver }

func (hangingDriver) Fingerprint(context.Context) fleet.DriverInfo {
	time.Sleep(time.Minute)
	return fleet.DriverInfo{Detected: true, HealthDescription: "it hung"}
}

// TestDaemonsThatHangAreAskedTogether: three of them take as long as one, because tasks wait for the first reading.
func TestDaemonsThatHangAreAskedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := mustNew(t, func(cfg *fingerprint.Config) {
			cfg.Drivers = map[string]drivers.Driver{"a": hangingDriver{}, "b": hangingDriver{}, "c": hangingDriver{}}
		})
		began := time.Now()
		mustRead(t, f)
		if took := time.Since(began); took != time.Minute {
			t.Errorf("the reading took %s, want 1m", took)
		}
		if n := f.Node(); len(n.Drivers) != 3 || n.Drivers["b"].HealthDescription != "it hung" {
			t.Errorf("drivers: %+v", n.Drivers)
		}
	})
}
