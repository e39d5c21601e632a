package checks

import "cmp"

// counter counts the results of a check in a row, and says which status they give. Without thresholds in the job that
// is the status of the newest result.
type counter struct{ successes, failures int }

// nextStatus counts one more result and returns the status after it; shown is the status before. A success counts once
// there are success_before_passing in a row, and a failure once there are failures_before_critical: until then it is a
// warning from failures_before_warning on, which is failures_before_critical by default.
func (n *counter) nextStatus(c *check, shown, result string) string {
	if result != Failure {
		n.successes, n.failures = n.successes+1, 0
		if n.successes >= c.SuccessBeforePassing {
			return result
		}
		return shown
	}
	n.successes, n.failures = 0, n.failures+1
	switch {
	case n.failures >= c.FailuresBeforeCritical:
		return Failure
	case n.failures >= cmp.Or(c.FailuresBeforeWarning, c.FailuresBeforeCritical):
		return Warning
	}
	return shown
}

// initialStatuses are the statuses that initial_status names.
var initialStatuses = map[string]string{"": Pending, "pending": Pending, "passing": Success, "warning": Warning, "critical": Failure}
