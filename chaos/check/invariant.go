package check

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Invariant is the number of one of a closed set of promises. 1 to 10 are the invariants of the architecture,
// under its numbers. The others are promises that only the harness checks.
type Invariant int

// The invariants, in the order of their numbers. Statement says what each promises.
const (
	ExactlyOnce          Invariant = 1
	HeartbeatFirst       Invariant = 2
	AbsenceStopsNothing  Invariant = 3
	RebootBringsBack     Invariant = 4
	Settled              Invariant = 5
	AcknowledgedSurvives Invariant = 6
	NoOvercommit         Invariant = 7
	OncePerDisconnect    Invariant = 8
	Bounded              Invariant = 9
	TrustedTime          Invariant = 10
	RefusedAloud         Invariant = 11
	LegalHistory         Invariant = 12
	Sequence             Invariant = 13
	NeverBack            Invariant = 14
	Instances            Invariant = 15
	Initializing         Invariant = 16
	Linearizable         Invariant = 17
	EvaluationsEnd       Invariant = 18
	FinalState           Invariant = 19
	Fencing              Invariant = 20
	StopDeadline         Invariant = 21
	Jitter               Invariant = 22
	SameEverywhere       Invariant = 23
	NoLeak               Invariant = 24
	MaxParallel          Invariant = 25
	Canaries             Invariant = 26
	SiteBudget           Invariant = 27
	Deferred             Invariant = 28
	NoneBetween          Invariant = 29
	LaunchedOnce         Invariant = 30
	DrainsEnd            Invariant = 31
	DeploymentsEnd       Invariant = 32
	Windows              Invariant = 33
	CatalogueTrue        Invariant = 34
	HeldOnSite           Invariant = 35
	SecretsSealed        Invariant = 36
	NewestVariables      Invariant = 37
	OneHolder            Invariant = 38
	Permitted            Invariant = 39
	Audited              Invariant = 40
	IdentitiesRenewed    Invariant = 41
	SiteCodes            Invariant = 42
)

// invariants has the slug and the statement of each invariant, by number. Reports show both.
var invariants = [...]struct{ slug, statement string }{
	ExactlyOnce:          {"exactly-once", "journaled transitions reach the hub, in order and once"},
	HeartbeatFirst:       {"heartbeat-first", "no update without a heartbeat in its session; ready only after history"},
	AbsenceStopsNothing:  {"absence-stops-nothing", "losing the link alone stops no task"},
	RebootBringsBack:     {"reboot-brings-back", "a reboot without a link brings the tasks back"},
	Settled:              {"settled", "once quiet: exactly count allocations run, by every hub's state and in fact"},
	AcknowledgedSurvives: {"acknowledged-survives", "an acknowledged write survives any minority of hubs dying"},
	NoOvercommit:         {"no-overcommit", "no plan over-commits a node"},
	OncePerDisconnect:    {"once-per-disconnect", "each disconnect leads to one replacement at most, and is settled once"},
	Bounded:              {"bounded", "an absent hub blocks no runner; rows that wait for it are bounded, and no status is dropped"},
	TrustedTime:          {"trusted-time", "no decision uses an edge's wall clock, and no window ends early"},
	RefusedAloud:         {"refused-aloud", "every refusal has a code, and none is silent"},
	LegalHistory:         {"legal-history", "each history has allowed transitions only; disconnect and reconnect alternate"},
	Sequence:             {"sequence", "each sequence number is applied at most once, and no gap is hidden"},
	NeverBack:            {"never-back", "the number that the cluster acknowledged never goes back"},
	Instances:            {"instances", "after healing no more instances run than a job allows, within a bound"},
	Initializing:         {"initializing", "no connected node stays short of ready beyond its bound"},
	Linearizable:         {"linearizable", "registering and reading a job is linearizable"},
	EvaluationsEnd:       {"evaluations-end", "every evaluation ends"},
	FinalState:           {"final-state", "evaluations come from the state after a replay, one for each job, never from a superseded row"},
	Fencing:              {"fencing", "a newer session fences the older one, and rows of a forked journal are never applied"},
	StopDeadline:         {"stop-deadline", "stop_on_client_after stops when it is over, across reboots, and not before"},
	Jitter:               {"jitter", "edges that lost their link together do not reconnect at the same moments"},
	SameEverywhere:       {"same-everywhere", "the same entry is the same command, with the same result and state, on every hub"},
	NoLeak:               {"no-leak", "no goroutine, file or memory leaks, however long a run is"},
	MaxParallel:          {"max-parallel", "no plan takes down more than max_parallel allocations of a group at once"},
	Canaries:             {"canaries", "no more canaries than the job asks for, no other update before their promotion, and no promotion unasked"},
	SiteBudget:           {"site-budget", "no plan takes down more at a site than max_unavailable_per_site"},
	Deferred:             {"deferred", "allocations on absent nodes are deferred: no rollout fails because of them, or ends before wait_for allows it"},
	NoneBetween:          {"none-between", "an edge gets the newest version, and none between its old one and the newest"},
	LaunchedOnce:         {"launched-once", "a periodic job is launched once for each time, without overlap if it prohibits that; a dispatch is done once, with the payload and the meta that were given"},
	DrainsEnd:            {"drains-end", "a drain ends by its deadline, and no allocation is desired on the node then"},
	DeploymentsEnd:       {"deployments-end", "every deployment ends"},
	Windows:              {"windows", "an edge begins no update outside of its windows, also out of reach"},
	CatalogueTrue:        {"catalogue", "the catalogue of services lists no ended allocation, and its index grows with each change"},
	HeldOnSite:           {"held-on-site", "a stop on site holds until a start on site, is reported once, and causes no replacement"},
	SecretsSealed:        {"secrets-sealed", "no secret is on a disk in clear, or in a message to an edge that does not need it"},
	NewestVariables:      {"newest-variables", "variables are read as they were written last, reach each edge that needs them within a bound, and stay there without a link"},
	Permitted:            {"permitted", "nobody without the capability changes or reads anything, and no revoked edge gets anything"},
	Audited:              {"audited", "the audit has every acknowledged change once and in order, and its chain verifies"},
	OneHolder:            {"one-holder", "a lock of a variable has one holder at a time"},
	IdentitiesRenewed:    {"identities-renewed", "an edge with a link has, within a bound, an identity that has not expired for each running task that asks for one; an offline one also without a link"},
	SiteCodes:            {"site-codes", "a site code is good on each edge that was told of it, also without a link, and no longer once the edge was told that it is revoked"},
}

// All returns all invariants, in the order of their numbers.
func All() []Invariant {
	all := make([]Invariant, 0, len(invariants)-1)
	for i := range invariants[1:] {
		all = append(all, Invariant(i+1))
	}
	return all
}

// isKnownInvariant reports whether the number is that of an invariant.
func (i Invariant) isKnownInvariant() bool { return i > 0 && int(i) < len(invariants) }

// Slug returns the name of the invariant that reports, scenarios and mutations use.
func (i Invariant) Slug() string {
	if !i.isKnownInvariant() {
		return fmt.Sprintf("invariant-%d", int(i))
	}
	return invariants[i].slug
}

// Statement returns the invariant's promise on one line.
func (i Invariant) Statement() string {
	if !i.isKnownInvariant() {
		return fmt.Sprintf("invariant %d", int(i))
	}
	return invariants[i].statement
}

// String returns the slug.
func (i Invariant) String() string { return i.Slug() }

// InvariantNamed returns the invariant with a slug. ok is false if there is none.
func InvariantNamed(slug string) (Invariant, bool) {
	i := slices.IndexFunc(All(), func(i Invariant) bool { return i.Slug() == slug })
	return Invariant(i + 1), i >= 0
}

// MarshalText returns the slug, so that files do not depend on this package's numbers.
func (i Invariant) MarshalText() ([]byte, error) {
	if !i.isKnownInvariant() {
		return nil, fmt.Errorf("encode invariant %d: no invariant has this number", int(i))
	}
	return []byte(i.Slug()), nil
}

// UnmarshalText sets the invariant from its slug.
func (i *Invariant) UnmarshalText(text []byte) error {
	found, ok := InvariantNamed(string(text))
	if !ok {
		return fmt.Errorf("decode invariant %q: no invariant has this name", text)
	}
	*i = found
	return nil
}

// Violation is a broken invariant, with evidence.
type Violation struct {
	Invariant Invariant
	// At is when it was found, from the run's start by the run's own clock; 0: Quiet
	// found it in a snapshot.
	At    time.Duration `json:",omitzero"`
	Where string        `json:",omitempty"` // the hub, edge or job that shows it
	// Message says what is wrong, on one line.
	Message string
	// Evidence has lines that show it, in the order of time.
	Evidence []string `json:",omitempty"`
}

// String returns the violation in one line.
func (v Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "invariant %d (%s)", int(v.Invariant), v.Invariant.Slug())
	if v.At > 0 {
		fmt.Fprintf(&b, " at %s", v.At.Round(time.Millisecond))
	}
	if v.Where != "" {
		fmt.Fprintf(&b, ", %s", v.Where)
	}
	return b.String() + ": " + v.Message
}

// violationList collects violations that have neither time nor place.
type violationList struct{ found []Violation }

// addViolation appends a violation with a formatted message.
func (l *violationList) addViolation(i Invariant, format string, args ...any) {
	l.found = append(l.found, Violation{Invariant: i, Message: fmt.Sprintf(format, args...)})
}

// maxEvidence bounds the lines of evidence of one violation.
const maxEvidence = 40
