package planted

// Bug names a mistake, as the environment, a scenario and a report do.
type Bug string

// What may be planted. Each is the smallest mistake of its kind that a tired
// person might make, at the place where that person would make it.
const (
	// Of the journal, and of how it gets to the cluster.
	ApplyTwice             Bug = "apply-twice"              // edges say all rows again, and those that are applied are applied again
	DropTransition         Bug = "drop-transition"          // of several rows about one allocation only the newest is kept
	GlueOverGap            Bug = "glue-over-gap"            // rows are taken that do not follow from what is applied
	AppliedNumberBack      Bug = "applied-number-back"      // with a boot an edge's numbers are thought to begin anew
	AcknowledgeBeforeFsync Bug = "acknowledge-before-fsync" // the journal answers before its commit, and whatever comes of it
	UnboundedBuffer        Bug = "unbounded-buffer"         // the journal takes what its bound leaves no room for

	// Of sessions.
	AcceptBeforeHeartbeat Bug = "accept-before-heartbeat" // rows count before the session does, at the door and in the command
	ForgetFencing         Bug = "forget-fencing"          // an earlier session's word counts, and it is not ended
	ReadyBeforeHistory    Bug = "ready-before-history"    // a node that is back is ready before its rows are in
	NeverReady            Bug = "never-ready"             // a node that is back stays initializing when its rows are in
	RefuseSilently        Bug = "refuse-silently"         // an edge is not told that its rows were refused
	DisconnectTwice       Bug = "disconnect-twice"        // an edge notes one loss of its link again and again
	RetryWithoutJitter    Bug = "retry-without-jitter"    // edges that lost their hub together come back together
	LeakSocket            Bug = "leak-socket"             // a round of dialing in vain leaves its socket open

	// Of what is decided about allocations.
	ReplaceTwice       Bug = "replace-twice"       // what is out of sight is replaced at each look
	SettleTwice        Bug = "settle-twice"        // an allocation that was ever unknown is settled at each look
	OverCommit         Bug = "over-commit"         // a plan is not checked against what nodes have left
	EvaluateSuperseded Bug = "evaluate-superseded" // what is reported is judged before all of the history is in
	DrawWhenApplied    Bug = "draw-when-applied"   // each hub draws the ids that an entry makes
	LoseOnElection     Bug = "lose-on-election"    // a new leader gives nobody time to be heard
	TombstoneForgotten Bug = "tombstone-forgotten" // the allocations of a purged job run on
	ForgetDelivery     Bug = "forget-delivery"     // an evaluation whose worker died is not given to another

	// Of what runs at the edge.
	StopByAbsence     Bug = "stop-by-absence"     // what a delivery does not mention is stopped
	StopAtLostAfter   Bug = "stop-at-lost-after"  // lost_after is taken for stop_on_client_after
	ResetStopDeadline Bug = "reset-stop-deadline" // stop_on_client_after begins anew when the agent does
	ClockDecides      Bug = "clock-decides"       // the edge's wall clock says for how long there was no hub
	RebootForgets     Bug = "reboot-forgets"      // what ran before a boot is not started again
	StartTwice        Bug = "start-twice"         // a task that runs is started once more by the next agent

	// Of rollouts, launches and drains.
	TakeDownAll        Bug = "take-down-all"         // max_parallel is not counted
	OneCanaryMore      Bug = "one-canary-more"       // a canary is placed beyond those that are wanted
	PromoteUnasked     Bug = "promote-unasked"       // canaries that wait for a person promote themselves
	SitesForgotten     Bug = "sites-forgotten"       // max_unavailable_per_site is not looked at
	AbsentIsHealthy    Bug = "absent-is-healthy"     // what is away counts as if it were healthy
	AbsentIsFailed     Bug = "absent-is-failed"      // a deployment's deadline runs for what is away
	OneByOne           Bug = "one-by-one"            // what is behind gets the version after its own, not the newest
	WindowForgotten    Bug = "window-forgotten"      // an edge begins an update whenever it hears of it
	NeverComplete      Bug = "never-complete"        // a deployment that has got where it should goes on
	LaunchNotNoted     Bug = "launch-not-noted"      // that a time was launched is not noted with the launch
	OverlapForgotten   Bug = "overlap-forgotten"     // a job is launched beside its last child
	DeadlineOfDrainOff Bug = "deadline-of-drain-off" // nobody looks at a drain's deadline

	// Of what the cluster says.
	StaleRead          Bug = "stale-read"           // a hub answers a read without asking how far the leader is
	CatalogueUntold    Bug = "catalogue-untold"     // who follows the catalogue of services is not told of what an allocation does to it
	AcknowledgeInDoubt Bug = "acknowledge-in-doubt" // a write of unknown outcome is said to be done
)
