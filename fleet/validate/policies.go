package validate

import (
	"fmt"
	"time"

	"skerry/fleet"
)

// validateReschedule checks that the policy is unambiguous and its attempts fit its interval.
func validateReschedule(ps *fleet.Problems, path string, p *fleet.ReschedulePolicy, jobType string) {
	if p == nil {
		return
	}
	if fleet.RunsEverywhere(jobType) {
		ps.Add(path, "jobs of type %s are never rescheduled", jobType)
		return
	}
	if p.Attempts < 0 {
		ps.Add(path+".Attempts", "may not be negative: %d", p.Attempts)
		return
	}
	if p.Attempts == 0 && !p.Unlimited {
		return // never rescheduled: the rest does not matter
	}
	if p.Attempts > 0 && p.Unlimited {
		ps.Add(path+".Unlimited", "%d attempts and unlimited exclude each other", p.Attempts)
	}
	if !validRescheduleDelays(ps, path, p) || p.Unlimited {
		return
	}
	if p.Interval < fleet.MinRescheduleInterval {
		ps.Add(path+".Interval", "must be at least %s, not %s", fleet.MinRescheduleInterval, p.Interval)
		return
	}
	checkDuration(ps, path+".Interval", p.Interval)
	if fit, need := attemptsInInterval(p); fit < p.Attempts {
		ps.Add(path+".Interval", "only %d of %d attempts fit into %s: it takes %s", fit, p.Attempts, p.Interval, need)
	}
}

func validRescheduleDelays(ps *fleet.Problems, path string, p *fleet.ReschedulePolicy) bool {
	before := len(*ps)
	switch p.DelayFunction {
	case fleet.DelayConstant:
	case fleet.DelayExponential, fleet.DelayFibonacci:
		if p.MaxDelay < p.Delay {
			ps.Add(path+".MaxDelay", "%s is less than the delay of %s", p.MaxDelay, p.Delay)
		}
		checkDuration(ps, path+".MaxDelay", p.MaxDelay)
	default:
		ps.AddHint(path+".DelayFunction", "it is constant, exponential or fibonacci",
			"unknown delay function %q", p.DelayFunction)
	}
	if p.Delay < fleet.MinRescheduleDelay {
		ps.Add(path+".Delay", "must be at least %s, not %s", fleet.MinRescheduleDelay, p.Delay)
	}
	checkDuration(ps, path+".Delay", p.Delay)
	return len(*ps) == before
}

// attemptsInInterval returns how many attempts fit into the policy's interval, and the interval
// that all of them need. As in Nomad, only the longest of growing delays counts, and every
// delay once MaxDelay is reached.
func attemptsInInterval(p *fleet.ReschedulePolicy) (fit int, need time.Duration) {
	previous, delay := time.Duration(0), p.Delay
	capped := false
	for i := range p.Attempts {
		switch {
		case p.DelayFunction == fleet.DelayConstant:
			need += delay
		case p.DelayFunction == fleet.DelayFibonacci && delay > p.MaxDelay && !capped:
			capped = true
			need = p.MaxDelay
		case delay > p.MaxDelay:
			delay = p.MaxDelay
			need += delay
		default:
			need = delay
		}
		if need <= p.Interval {
			fit = i + 1
		}
		if need > fleet.MaxDuration {
			return fit, need // long over; the sum must not overflow
		}
		switch p.DelayFunction {
		case fleet.DelayExponential:
			delay *= 2
		case fleet.DelayFibonacci:
			previous, delay = delay, previous+delay
		}
	}
	return fit, need
}

func validateRestart(ps *fleet.Problems, path string, p *fleet.RestartPolicy) {
	if p == nil {
		return
	}
	if p.Mode != fleet.RestartModeFail && p.Mode != fleet.RestartModeDelay {
		ps.AddHint(path+".Mode", "it is fail or delay", "unknown restart mode %q", p.Mode)
	}
	if p.Attempts < 0 {
		ps.Add(path+".Attempts", "may not be negative: %d", p.Attempts)
		return
	}
	if p.Attempts == 0 && p.Mode == fleet.RestartModeDelay {
		ps.Add(path+".Attempts", "mode delay with 0 attempts is ambiguous")
	}
	if p.Interval < 5*time.Second {
		ps.Add(path+".Interval", "must be at least 5s, not %s", p.Interval)
	}
	checkDuration(ps, path+".Interval", p.Interval)
	checkDuration(ps, path+".Delay", p.Delay)
	if p.Interval > 0 && p.Delay > 0 && int64(p.Attempts) > int64(p.Interval/p.Delay) {
		ps.Add(path+".Interval", "%d attempts with a delay of %s do not fit into %s", p.Attempts, p.Delay, p.Interval)
	}
}

func validateDisconnect(ps *fleet.Problems, path string, d *fleet.Disconnect, jobType string) {
	if d == nil {
		return
	}
	if d.LostAfter != nil {
		checkDuration(ps, path+".LostAfter", *d.LostAfter)
	}
	if d.StopOnClientAfter != nil {
		checkDuration(ps, path+".StopOnClientAfter", *d.StopOnClientAfter)
		if after := *d.StopOnClientAfter; after >= 0 && after < fleet.MinStopOnClientAfter {
			ps.Add(path+".StopOnClientAfter", "must be at least %s, not %s: a connected edge sends at most one heartbeat a second",
				fleet.MinStopOnClientAfter, after)
		}
		if fleet.RunsEverywhere(jobType) {
			ps.Add(path+".StopOnClientAfter", "jobs of type %s do not allow stop_on_client_after", jobType)
		}
	}
	if d.LostAfter != nil && d.StopOnClientAfter != nil {
		ps.Add(path+".StopOnClientAfter", "lost_after and stop_on_client_after exclude each other")
	}
	checkOneOf(ps, path+".Reconcile", "it is best_score, keep_original, keep_replacement or longest_running", "unknown way to reconcile", d.Reconcile,
		"", fleet.ReconcileKeepOriginal, fleet.ReconcileKeepReplacement, fleet.ReconcileLongestRunning, fleet.ReconcileBestScore)
}

func validateUpdate(u *fleet.Update, ps *fleet.Problems, path string) {
	checkHealth(ps, path, u.HealthCheck)
	checkNotNegative(ps, path+".MaxParallel", u.MaxParallel)
	checkNotNegative(ps, path+".Canary", u.Canary)
	if u.AutoPromote && u.Canary == 0 {
		ps.Add(path+".AutoPromote", "auto_promote needs canaries: set canary")
	}
	checkDuration(ps, path+".Stagger", u.Stagger)
	checkDuration(ps, path+".MinHealthyTime", u.MinHealthyTime)
	checkDuration(ps, path+".ProgressDeadline", u.ProgressDeadline)
	if u.HealthyDeadline <= 0 {
		ps.Add(path+".HealthyDeadline", "must be longer than 0s, not %s", u.HealthyDeadline)
	} else if u.MinHealthyTime >= u.HealthyDeadline {
		ps.Add(path+".MinHealthyTime", "%s must be less than the healthy_deadline of %s", u.MinHealthyTime, u.HealthyDeadline)
	}
	if u.ProgressDeadline > 0 && u.HealthyDeadline >= u.ProgressDeadline {
		ps.Add(path+".HealthyDeadline", "%s must be less than the progress_deadline of %s", u.HealthyDeadline, u.ProgressDeadline)
	}
	validateSites(u, ps, path)
}

// maxWindows bounds the windows of an update block, for each stop carries them.
const maxWindows = 10

// validateSites checks the fields that Nomad does not have. Package cron checks the expressions.
func validateSites(u *fleet.Update, ps *fleet.Problems, path string) {
	checkNotNegative(ps, path+".MaxUnavailablePerSite", u.MaxUnavailablePerSite)
	if _, _, ok := u.WaitShare(); !ok {
		ps.AddHint(path+".WaitFor", `it is reachable, all, or a percentage such as "95%"`, "%q says nothing to wait for", u.WaitFor)
	}
	if len(u.Windows) > maxWindows {
		ps.Add(path+".Windows", "%d windows: at most %d are taken", len(u.Windows), maxWindows)
	}
	for i, w := range u.Windows {
		at := fmt.Sprintf("%s.Windows[%d]", path, i)
		if w.Cron == "" {
			ps.Add(at+".Cron", "a window needs a cron expression that says when it opens")
		}
		if w.Duration <= 0 {
			ps.Add(at+".Duration", "must be longer than 0s, not %s", w.Duration)
		}
		checkDuration(ps, at+".Duration", max(0, w.Duration))
	}
}

func validateMigrate(m *fleet.Migrate, ps *fleet.Problems, path string) {
	checkHealth(ps, path, m.HealthCheck)
	checkNotNegative(ps, path+".MaxParallel", m.MaxParallel)
	checkDuration(ps, path+".MinHealthyTime", m.MinHealthyTime)
	checkDuration(ps, path+".HealthyDeadline", m.HealthyDeadline)
	if m.MinHealthyTime > m.HealthyDeadline {
		ps.Add(path+".MinHealthyTime", "%s must be less than the healthy_deadline of %s", m.MinHealthyTime, m.HealthyDeadline)
	}
}

func checkHealth(ps *fleet.Problems, path, check string) {
	checkOneOf(ps, path+".HealthCheck", "it is checks, task_states or manual", "unknown way to check health", check,
		fleet.HealthChecks, fleet.HealthTaskStates, fleet.HealthManual)
}
