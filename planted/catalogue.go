package planted

import "slices"

// Entry says of a bug which invariant has to name it.
type Entry struct {
	Bug       Bug
	Invariant string // its slug, as chaos/check prints it
}

// Catalogue lists all bugs.
func Catalogue() []Entry { return slices.Clone(catalogue) }

var catalogue = []Entry{
	{ApplyTwice, "exactly-once"},
	{DropTransition, "exactly-once"},
	{GlueOverGap, "sequence"},
	{AppliedNumberBack, "never-back"},
	{AcknowledgeBeforeFsync, "bounded"},
	{UnboundedBuffer, "bounded"},
	{AcceptBeforeHeartbeat, "heartbeat-first"},
	{ForgetFencing, "fencing"},
	{ReadyBeforeHistory, "heartbeat-first"},
	{NeverReady, "initializing"},
	{RefuseSilently, "refused-aloud"},
	{DisconnectTwice, "legal-history"},
	{RetryWithoutJitter, "jitter"},
	{LeakSocket, "no-leak"},
	{ReplaceTwice, "once-per-disconnect"},
	{SettleTwice, "once-per-disconnect"},
	{OverCommit, "no-overcommit"},
	{EvaluateSuperseded, "final-state"},
	{DrawWhenApplied, "same-everywhere"},
	{LoseOnElection, "trusted-time"},
	{TombstoneForgotten, "settled"},
	{ForgetDelivery, "evaluations-end"},
	{StopByAbsence, "absence-stops-nothing"},
	{StopAtLostAfter, "absence-stops-nothing"},
	{ResetStopDeadline, "stop-deadline"},
	{ClockDecides, "trusted-time"},
	{RebootForgets, "reboot-brings-back"},
	{StartTwice, "instances"},
	{TakeDownAll, "max-parallel"},
	{OneCanaryMore, "canaries"},
	{PromoteUnasked, "canaries"},
	{SitesForgotten, "site-budget"},
	{AbsentIsHealthy, "deferred"},
	{AbsentIsFailed, "deferred"},
	{OneByOne, "none-between"},
	{WindowForgotten, "windows"},
	{NeverComplete, "deployments-end"},
	{LaunchNotNoted, "launched-once"},
	{OverlapForgotten, "launched-once"},
	{DeadlineOfDrainOff, "drains-end"},
	{StaleRead, "linearizable"},
	{CatalogueUntold, "catalogue"},
	{AcknowledgeInDoubt, "acknowledged-survives"},
}
