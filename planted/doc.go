// Package planted holds the bugs that may be planted in this code, to see whether
// the harness in chaos finds them. A checker that has never failed proves nothing:
// it may look at the wrong thing, too late, or not at all.
//
// Production code asks On at the place where a mistake is easy to make and hard to
// see:
//
//	if planted.On(planted.ApplyTwice) {
//		skip = 0
//	}
//
// Why such lines stand there, and not in copies of the code or in fakes: a mistake
// is found, or not, by what follows from it in everything around it, and only the
// real thing has that around it. Without the build tag "planted" On is false for
// the compiler, which removes the line and all that it would have done; a test
// looks into the program for traces. With the tag a process has the bug that its
// environment names (SKERRY_PLANTED=apply-twice), and a simulation, which has its
// whole cluster in one process, plants one by Plant. At most one at a time: each
// has to be found for itself.
//
// The package imports nothing of ours, starts nothing, and persists nothing. Every
// package may import it.
//
// Which invariant has to name each bug, by the slugs of chaos/check:
//
//	apply-twice               exactly-once
//	drop-transition           exactly-once
//	glue-over-gap             sequence
//	applied-number-back       never-back
//	acknowledge-before-fsync  bounded
//	unbounded-buffer          bounded
//	accept-before-heartbeat   heartbeat-first
//	forget-fencing            fencing
//	ready-before-history      heartbeat-first
//	never-ready               initializing
//	refuse-silently           refused-aloud
//	disconnect-twice          legal-history
//	retry-without-jitter      jitter
//	leak-socket               no-leak
//	replace-twice             once-per-disconnect
//	settle-twice              once-per-disconnect
//	over-commit               no-overcommit
//	evaluate-superseded       final-state
//	draw-when-applied         same-everywhere
//	lose-on-election          trusted-time
//	tombstone-forgotten       settled
//	forget-delivery           evaluations-end
//	stop-by-absence           absence-stops-nothing
//	stop-at-lost-after        absence-stops-nothing
//	reset-stop-deadline       stop-deadline
//	clock-decides             trusted-time
//	reboot-forgets            reboot-brings-back
//	start-twice               instances
//	take-down-all             max-parallel
//	one-canary-more           canaries
//	promote-unasked           canaries
//	sites-forgotten           site-budget
//	absent-is-healthy         deferred
//	absent-is-failed          deferred
//	one-by-one                none-between
//	window-forgotten          windows
//	never-complete            deployments-end
//	launch-not-noted          launched-once
//	overlap-forgotten         launched-once
//	deadline-of-drain-off     drains-end
//	stale-read                linearizable
//	catalogue-untold          catalogue
//	acknowledge-in-doubt      acknowledged-survives
package planted
