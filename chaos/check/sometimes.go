package check

import "maps"

// Branch is a situation that a run may reach. A campaign has to reach those of Branches: code of a situation
// that no run reaches was not judged. The set is closed.
type Branch string

// The branches that checkers count.
const (
	BranchLongReplay            Branch = "replay of more than 100 rows"
	BranchRowsRepeated          Branch = "rows sent again that were applied"
	BranchLeaderChangedInReplay Branch = "leader changed while replaying"
	BranchSessionTakenOver      Branch = "session fenced by a newer one"
	BranchCloneFenced           Branch = "clone fenced"
	BranchStaleEpochRefused     Branch = "stale epoch refused"
	BranchNotReadyRefused       Branch = "update before a heartbeat refused"
	BranchGapRefused            Branch = "gap refused"
	BranchNewBase               Branch = "journal goes on from a new base"
	BranchJournalRebuilt        Branch = "journal damaged and rebuilt"
	BranchJournalDropped        Branch = "rows dropped at the bound and counted"
	BranchDisconnected          Branch = "node disconnected"
	BranchDown                  Branch = "node down"
	BranchUnknown               Branch = "allocation unknown"
	BranchReplacedAway          Branch = "replacement placed while away"
	BranchKeptOriginal          Branch = "settled: the original is kept"
	BranchKeptReplacement       Branch = "settled: the replacement is kept"
	BranchLostAfterWindow       Branch = "allocation lost after its window"
	BranchEndedAway             Branch = "allocation ended while away"
	BranchRestartedAway         Branch = "task restarted while away"
	BranchBootedAway            Branch = "tasks back after a boot without a link"
	BranchStopDeadline          Branch = "task stopped by stop_on_client_after"
	BranchSnapshotInstalled     Branch = "snapshot installed on a follower"
	BranchLeaderChanged         Branch = "leader changed"
	BranchBackoffAtCap          Branch = "back-off reached its cap"
	BranchRebound               Branch = "new address without a new session"
	BranchClusterWentBack       Branch = "edge kept its work against an older cluster"
	BranchClockMoved            Branch = "clock moved under running tasks"
	BranchUnknownOutcome        Branch = "client does not know its outcome"
	BranchConflict              Branch = "registration refused for another one"
	BranchMassRejoin            Branch = "five nodes back within ten seconds"
	BranchFinishedDeferred      Branch = "rollout finished with somebody deferred"
	BranchStraightToNewest      Branch = "came back straight to the newest version"
	BranchPromoted              Branch = "canary promoted"
	BranchDrainDeadlined        Branch = "drain ended by its deadline"
	BranchLaunchedByNext        Branch = "periodic launch after a leader change"
	BranchDispatchRepeated      Branch = "dispatch repeated with its token"
	BranchDispatchGiven         Branch = "dispatch whose input reached a task"
	BranchWindowAway            Branch = "update begun in its window, out of reach"
	BranchHeldAcrossStart       Branch = "stop on site held over a start without a link"
	BranchHoldOverruled         Branch = "stop on site overruled by a newer version"
	BranchVariableKept          Branch = "variable kept over a start without a link"
	BranchVariableCaughtUp      Branch = "variable that changed while its edge was away"
	BranchIdentityExpired       Branch = "identity that expired while its edge was away"
	BranchIdentityOffline       Branch = "identity that its edge renewed while it was away"
)

// Branches returns the branches that a campaign has to reach. The others are refusals of rows that correct
// edges and hubs never send, which only mutations and tests of the protocol reach.
func Branches() []Branch {
	return []Branch{
		BranchLongReplay, BranchLeaderChangedInReplay, BranchSessionTakenOver, BranchCloneFenced,
		BranchNotReadyRefused, BranchNewBase, BranchJournalRebuilt,
		BranchJournalDropped, BranchDisconnected, BranchDown, BranchUnknown, BranchReplacedAway, BranchKeptOriginal,
		BranchKeptReplacement, BranchLostAfterWindow, BranchEndedAway, BranchRestartedAway, BranchBootedAway,
		BranchStopDeadline, BranchSnapshotInstalled, BranchLeaderChanged, BranchBackoffAtCap, BranchRebound,
		BranchClusterWentBack, BranchClockMoved, BranchUnknownOutcome, BranchConflict, BranchMassRejoin,
		BranchFinishedDeferred, BranchStraightToNewest, BranchPromoted, BranchDrainDeadlined, BranchLaunchedByNext,
		BranchDispatchRepeated, BranchDispatchGiven,
		BranchHeldAcrossStart, BranchVariableKept, BranchVariableCaughtUp, BranchIdentityExpired, BranchIdentityOffline,
	}
}

// Reached returns how often the run reached each branch. Branches that it never reached are not in the map.
func (m *Monitor) Reached() map[Branch]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.run.tally)
}
