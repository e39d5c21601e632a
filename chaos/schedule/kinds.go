package schedule

import "time"

// Bounds that many kinds share.
const (
	day = 24 * time.Hour
	// longest is the maximum duration of a fault, of most other times, and of a run.
	longest = 400 * day
	// memberRecovery is the time without a conflicting fault after one that stopped a member's
	// process: an agent reads its journal, a hub catches up.
	memberRecovery = 20 * time.Second
	// clusterRecovery is the time without a conflicting fault after one that hit all hubs.
	clusterRecovery = 2 * time.Minute
	// RotationPatience is for how long a user asks for another CA. A copy of the hubs that is made later has that CA, or
	// the cluster never gets it.
	RotationPatience = 4 * time.Minute
)

// kindTable has the properties of every kind. A kind that is added here is drawn, parsed,
// printed and validated; there is no other list of kinds.
var kindTable = []Info{
	{
		Kind: LinkCut, At: AtEdge, Lasting: Lasts, Shortest: time.Second, Longest: longest,
		Params: []Param{wayParam, refusedParam}, Clock: Both, Takes: []Claim{ClaimLink}, Drawn: Span{5 * time.Second, 30 * time.Minute}, Weight: 10,
		Doc: "the link is gone; silent, or refused; both ways, or only what it sends (out) or gets (in)",
	},
	{
		Kind: Flapping, At: AtEdge, Lasting: Lasts, Shortest: 10 * time.Second, Longest: longest,
		Params: []Param{phasesParam}, Clock: Both, Takes: []Claim{ClaimLink}, Drawn: Span{30 * time.Second, 10 * time.Minute}, Weight: 4,
		Doc: "the link is gone and there by turns, each for a time drawn from a range",
	},
	{
		Kind: OfflineOn, At: AtEdge, Lasting: Lasts, Shortest: 10 * time.Second, Longest: longest,
		Params: []Param{offParam, onParam}, Clock: Both, Takes: []Claim{ClaimLink}, Drawn: Span{2 * time.Minute, 20 * time.Minute}, Weight: 3,
		Doc: "the link is gone and there by turns, each for a fixed time",
	},
	{
		Kind: NATRebind, At: AtEdge, Lasting: Instant, Clock: Both, Weight: 3,
		Doc: "its NAT forgets it: packets come from another port, and to the old one none pass",
	},
	{
		Kind: AddressChange, At: AtEdge, Lasting: Instant, Clock: Both, Weight: 3,
		Doc: "it has another address, and the old one is dead",
	},
	{
		Kind: LinkProfile, At: AtEdge, Lasting: Lasts, Shortest: time.Second, Longest: longest,
		Params: []Param{profileParam}, Clock: Both, Takes: []Claim{ClaimShape}, Drawn: Span{time.Minute, 20 * time.Minute}, Weight: 5,
		Doc: "the link is slow and lossy like a satellite's or a 3G cell's, or loses, reorders and duplicates",
	},
	{
		Kind: HubKill, At: AtHub, Lasting: MayLast, Longest: longest, Params: []Param{stepParam}, Clock: Both,
		Takes: []Claim{ClaimHub}, After: memberRecovery, Drawn: Span{time.Second, 3 * time.Minute}, Weight: 4,
		Doc: "SIGKILL; started again when the time is over",
	},
	{
		Kind: LeaderKill, At: AtLeader, Lasting: MayLast, Longest: day, Params: []Param{stepParam}, Clock: Both,
		Takes: []Claim{ClaimHub}, After: memberRecovery, Drawn: Span{time.Second, 3 * time.Minute}, Weight: 5,
		Doc: "SIGKILL of the hub that leads; started again when the time is over",
	},
	{
		Kind: HubPause, At: AtHub, Lasting: Lasts, Shortest: time.Second, Longest: time.Hour, Clock: Both,
		Takes: []Claim{ClaimHub}, After: memberRecovery, Drawn: Span{2 * time.Second, time.Minute}, Weight: 3,
		Doc: "stands still (SIGSTOP) and goes on as if nothing had been",
	},
	{
		Kind: HubDiskFull, At: AtHub, Lasting: Lasts, Shortest: time.Second, Longest: day, Clock: Both,
		Takes: []Claim{ClaimHub}, After: memberRecovery, Drawn: Span{10 * time.Second, 3 * time.Minute}, Weight: 2,
		Doc: "nothing can be written; a hub that gives up is started again when the time is over",
	},
	{
		Kind: MinorityCut, At: AtHub, Lasting: Lasts, Shortest: time.Second, Longest: day, Clock: Both,
		Takes: []Claim{ClaimHub}, After: memberRecovery, Drawn: Span{5 * time.Second, 5 * time.Minute}, Weight: 4,
		Doc: "fewer than half of the hubs are cut off from everyone",
	},
	{
		Kind: HubPart, At: AtHub, Lasting: Lasts, Shortest: time.Second, Longest: day, Clock: Virtual,
		Takes: []Claim{ClaimHub}, After: memberRecovery, Drawn: Span{5 * time.Second, 2 * time.Minute}, Weight: 4,
		Doc: "fewer than half of the hubs are cut off from the others, while edges reach them all",
	},
	{
		Kind: MajorityCut, At: AtHubs, Lasting: Lasts, Shortest: time.Second, Longest: day, Clock: Both,
		Takes: []Claim{ClaimHubs}, Apart: []Kind{Clone}, After: clusterRecovery, Drawn: Span{5 * time.Second, 3 * time.Minute}, Weight: 3,
		Doc: "no hub reaches a majority: nothing can be decided until it is over",
	},
	{
		Kind: Restore, At: AtHubs, Lasting: Instant, Params: []Param{ageParam}, Clock: Both,
		Takes: []Claim{ClaimHubs}, Apart: []Kind{Clone, MassRejoin, TornPage, BitFlip, Restore}, After: clusterRecovery, Weight: 3,
		Doc: "all hubs are stopped, put back to an older copy of their data, and started",
	},
	{
		Kind: EdgeKill, At: AtEdge, Lasting: MayLast, Longest: longest, Params: []Param{stepParam}, Clock: Both,
		Takes: []Claim{ClaimAgent}, After: memberRecovery, Drawn: Span{time.Second, 5 * time.Minute}, Weight: 5,
		Doc: "SIGKILL of the agent; its tasks live on; started again when the time is over",
	},
	{
		Kind: EdgePause, At: AtEdge, Lasting: Lasts, Shortest: time.Second, Longest: time.Hour, Clock: Real,
		Takes: []Claim{ClaimAgent}, After: memberRecovery, Drawn: Span{2 * time.Second, 3 * time.Minute}, Weight: 3,
		Doc: "the agent stands still (SIGSTOP) and goes on as if nothing had been; its tasks run",
	},
	{
		Kind: EdgeRestart, At: AtEdge, Lasting: MayLast, Longest: longest, Clock: Real,
		Takes: []Claim{ClaimAgent}, After: memberRecovery, Drawn: Span{time.Second, 5 * time.Minute}, Weight: 3,
		Doc: "the agent is stopped in good order; its tasks live on; started again when the time is over",
	},
	{
		Kind: EdgeReboot, At: AtEdge, Lasting: MayLast, Longest: longest, Clock: Both,
		Takes: []Claim{ClaimAgent}, After: memberRecovery, Drawn: Span{5 * time.Second, 10 * time.Minute}, Weight: 4,
		Doc: "the machine goes down in good order, with its tasks, and boots when the time is over",
	},
	{
		Kind: PowerCut, At: AtEdge, Lasting: MayLast, Longest: longest, Params: []Param{stepParam}, Clock: Both,
		Takes: []Claim{ClaimAgent}, After: memberRecovery, Drawn: Span{time.Second, 10 * time.Minute}, Weight: 5,
		Doc: "the machine is off at once, what was not synced is gone; it boots when the time is over",
	},
	{
		Kind: TornPage, At: AtEdge, Lasting: MayLast, Longest: longest, Clock: Both,
		Takes: []Claim{ClaimAgent}, Begins: []Claim{ClaimDisk}, After: memberRecovery, Drawn: Span{time.Second, time.Minute}, Weight: 3,
		Doc: "a power cut in the middle of a write: a page of the journal is half old, half new",
	},
	{
		Kind: BitFlip, At: AtEdge, Lasting: MayLast, Longest: longest, Params: []Param{bitsParam}, Clock: Both,
		Takes: []Claim{ClaimAgent}, Begins: []Claim{ClaimDisk}, After: memberRecovery, Drawn: Span{time.Second, time.Minute}, Weight: 3,
		Doc: "bits of the journal flip while the agent is down",
	},
	{
		Kind: DiskFull, At: AtEdge, Lasting: Lasts, Shortest: time.Second, Longest: longest, Clock: Both,
		Takes: []Claim{ClaimDisk}, After: memberRecovery,
		Shown: []Kind{CrashLoop, LinkCut, EdgeKill}, Drawn: Span{10 * time.Second, 10 * time.Minute}, Weight: 3,
		Doc: "nothing can be written; an agent that gives up is started again when the time is over",
	},
	{
		Kind: SlowDisk, At: AtMember, Lasting: Lasts, Shortest: time.Second, Longest: longest,
		Params: []Param{syncParam}, Clock: Both, Takes: []Claim{ClaimDisk},
		Shown: []Kind{CrashLoop, LinkCut}, Drawn: Span{10 * time.Second, 10 * time.Minute}, Weight: 3,
		Doc: "each sync takes long",
	},
	{
		Kind: ClockJump, At: AtEdge, Lasting: MayStay, Longest: longest, Params: []Param{jumpParam}, Clock: Both,
		Takes: []Claim{ClaimClock}, Drawn: Span{time.Minute, 20 * time.Minute}, Weight: 3,
		Doc: "the wall clock jumps, forward or back, and is right again when the time is over (without one: at the end)",
	},
	{
		Kind: Clock1970, At: AtEdge, Lasting: MayStay, Longest: longest, Clock: Both,
		Takes: []Claim{ClaimClock}, Begins: []Claim{ClaimAgent}, After: memberRecovery, Drawn: Span{time.Minute, 20 * time.Minute}, Weight: 3,
		Doc: "the machine reboots into 1970, and knows the time again when the time is over (without one: at the end)",
	},
	{
		Kind: Clone, At: AtEdge, Lasting: Lasts, Shortest: 10 * time.Second, Longest: longest, Clock: Both,
		Takes: []Claim{ClaimLink, ClaimShape, ClaimAgent, ClaimDisk, ClaimClock},
		Apart: []Kind{Clone, MajorityCut, Restore, MassRejoin}, Most: 1, After: memberRecovery, Drawn: Span{30 * time.Second, 3 * time.Minute}, Weight: 3,
		Doc: "a second machine starts with a copy of its data directory, and lives for that time",
	},
	{
		Kind: CertExpired, At: AtEdge, Lasting: Lasts, Shortest: 10 * time.Second, Longest: longest, Clock: Both,
		Takes: []Claim{ClaimLink}, Drawn: Span{4 * time.Minute, 20 * time.Minute}, Weight: 3,
		Doc: "it is cut off, and its certificate has expired before the link is back",
	},
	{
		Kind: MassRejoin, At: AtEdges, Lasting: Lasts, Shortest: 10 * time.Second, Longest: longest, Clock: Both,
		Takes: []Claim{ClaimLink, ClaimHubs}, Apart: []Kind{Clone, Restore}, After: clusterRecovery, Drawn: Span{20 * time.Second, 10 * time.Minute}, Weight: 3,
		Doc: "all edges are cut off and come back at once; the leader is killed while they do",
	},
	{
		Kind: CrashLoop, At: AtEdge, Lasting: Lasts, Shortest: time.Second, Longest: longest,
		Params: []Param{lifeParam, jobParam}, Clock: Both, Takes: []Claim{ClaimDriver}, Drawn: Span{30 * time.Second, 5 * time.Minute}, Weight: 3,
		Doc: "tasks end with an error soon after each start",
	},
	{
		Kind: DriverDead, At: AtEdge, Lasting: Lasts, Shortest: time.Second, Longest: longest, Clock: Both,
		Takes: []Claim{ClaimDriver},
		Shown: []Kind{EdgeKill, EdgeReboot, PowerCut}, Drawn: Span{10 * time.Second, 5 * time.Minute}, Weight: 3,
		Doc: "the driver answers nothing but errors; what runs goes on",
	},
	{
		Kind: DaemonKill, At: AtEdge, Lasting: MayLast, Longest: longest, Clock: Real,
		Takes: []Claim{ClaimDaemon}, After: memberRecovery,
		Shown: []Kind{EdgeKill, EdgeReboot, PowerCut}, Drawn: Span{time.Second, 3 * time.Minute}, Weight: 4,
		Doc: "SIGKILL of the container daemon, not of its containers; started again when the time is over",
	},
	{
		Kind: DaemonPause, At: AtEdge, Lasting: Lasts, Shortest: time.Second, Longest: time.Hour, Clock: Real,
		Takes: []Claim{ClaimDaemon}, After: memberRecovery,
		Shown: []Kind{EdgeKill, EdgeRestart}, Drawn: Span{10 * time.Second, 3 * time.Minute}, Weight: 3,
		Doc: "the container daemon stands still (SIGSTOP) and goes on as if nothing had been; its containers run",
	},
	{
		Kind: DaemonRestart, At: AtEdge, Lasting: MayLast, Longest: longest, Clock: Real,
		Takes: []Claim{ClaimDaemon}, After: memberRecovery, Drawn: Span{time.Second, 2 * time.Minute}, Weight: 3,
		Doc: "the container daemon is stopped in good order; started again when the time is over",
	},
	{
		Kind: ContainersLost, At: AtEdge, Lasting: Instant, Clock: Real,
		Takes: []Claim{ClaimDaemon}, After: memberRecovery, Weight: 2,
		Doc: "the container daemon is killed with its containers, and comes back without them",
	},
	{
		Kind: ContainerKill, At: AtEdge, Lasting: Instant, Clock: Real, Takes: []Claim{ClaimDaemon}, After: memberRecovery, Weight: 3,
		Doc: "somebody kills its containers (SIGKILL)",
	},
	{
		Kind: ContainerRemove, At: AtEdge, Lasting: Instant, Clock: Real, Takes: []Claim{ClaimDaemon}, After: memberRecovery, Weight: 3,
		Doc: "somebody removes its containers by force",
	},
	{
		Kind: Drain, At: AtEdge, Lasting: Lasts, Shortest: 10 * time.Second, Longest: longest,
		Params: []Param{deadlineParam, systemParam}, Clock: Both, Takes: []Claim{ClaimWork}, Apart: []Kind{Restore, Clone},
		Drawn: Span{2 * time.Minute, 8 * time.Minute},
		Doc:   "no fault: a person drains it, and has it take work again when the time is over",
	},
	{
		Kind: KeyRotate, At: AtCluster, Lasting: Instant, Clock: Virtual,
		Doc: "no fault: a person rotates the keyring in full, so that all variables are encrypted again, and the state key of the hubs",
	},
	{
		Kind: CARotate, At: AtCluster, Lasting: Instant, Params: []Param{graceParam}, Clock: Virtual, Apart: []Kind{Restore}, After: RotationPatience,
		Doc: "no fault: a person replaces the CA; an edge gets in with a certificate of the old one for the grace, and then renews it by a proof of its key",
	},
	{
		Kind: TokenRevoke, At: AtCluster, Lasting: Instant, Clock: Virtual,
		Doc: "no fault: a person revokes the token with which users call the hubs, who then get another one",
	},
	{
		Kind: NodeRevoke, At: AtEdge, Lasting: Lasts, Shortest: 10 * time.Second, Longest: longest, Clock: Virtual,
		Takes: []Claim{ClaimAgent, ClaimDisk, ClaimClock, ClaimDriver, ClaimSite, ClaimWork},
		Apart: []Kind{Restore, Clone, CertExpired}, Most: 1, After: memberRecovery, Drawn: Span{time.Minute, 8 * time.Minute},
		Doc: "a person expels it, whether it is connected or away; when the time is over its node is purged, and its machine joins with nothing, as another node",
	},
	{
		Kind: SiteCode, At: AtEdge, Lasting: Lasts, Shortest: 10 * time.Second, Longest: longest, Clock: Virtual, Drawn: Span{time.Minute, 8 * time.Minute},
		Doc: "no fault: a person on site gets a code, and tries it; it is revoked when the time is over, and tried again",
	},
	{
		Kind: LocalStop, At: AtEdge, Lasting: MayStay, Longest: longest, Params: []Param{jobParam}, Clock: Both,
		Takes: []Claim{ClaimSite}, Apart: []Kind{Clone},
		Shown: []Kind{EdgeReboot, PowerCut, EdgeKill}, Drawn: Span{20 * time.Second, 15 * time.Minute},
		Doc: "no fault: a person on site stops what runs there, and starts it again when the time is over (without one: never)",
	},
	{
		Kind: LocalRestart, At: AtEdge, Lasting: Instant, Params: []Param{jobParam}, Clock: Both,
		Takes: []Claim{ClaimSite}, Apart: []Kind{Clone}, After: memberRecovery,
		Doc: "no fault: a person on site restarts the tasks there",
	},
}
