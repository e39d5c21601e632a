package check_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"skerry/chaos/check"
	"skerry/fleet"
)

// op is an operation from call to its return, in seconds.
func op(call, ret int, o check.Operation) asked {
	o.Call = time.Duration(call) * time.Second
	return asked{o, time.Duration(ret) * time.Second}
}

type asked struct {
	check.Operation
	ret time.Duration
}

func write(tag string, at fleet.Index) check.Operation {
	return check.Operation{Does: check.OpRegister, Tag: tag, Modify: at, Outcome: check.OutcomeOK}
}

func read(tag string, at fleet.Index) check.Operation {
	return check.Operation{Does: check.OpRead, Tag: tag, Modify: at, Outcome: check.OutcomeOK}
}

func with(o check.Operation, outcome string) check.Operation {
	o.Outcome = outcome
	if outcome != check.OutcomeOK {
		o.Modify = 0
	}
	return o
}

func cas(tag string, check_, at fleet.Index) check.Operation {
	o := write(tag, at)
	o.Check, o.Enforces = check_, true
	return o
}

func stopped(o check.Operation) check.Operation {
	o.Stopped = true
	return o
}

var (
	nobody = check.Operation{Does: check.OpRead, Outcome: check.OutcomeNotFound}
	purge  = check.Operation{Does: check.OpPurge, Outcome: check.OutcomeOK}
	stop   = check.Operation{Does: check.OpDeregister, Outcome: check.OutcomeOK}
)

func TestLinearize(t *testing.T) {
	for _, c := range []struct {
		name string
		ops  []asked
		want check.Linearization
	}{
		{"nothing", nil, check.Legal},
		{"a write and a read", []asked{op(1, 2, write("a", 5)), op(3, 4, read("a", 5))}, check.Legal},
		{"a read of what was never written", []asked{op(1, 2, write("a", 5)), op(3, 4, read("b", 6))}, check.Illegal},
		{"a stale read", []asked{op(1, 2, write("a", 5)), op(3, 4, write("b", 6)), op(5, 6, read("a", 5))}, check.Illegal},
		{"a read beside the write", []asked{op(1, 2, write("a", 5)), op(3, 6, write("b", 6)), op(4, 5, read("a", 5))}, check.Legal},
		{"the new value, then the old one", []asked{
			op(1, 2, write("a", 5)), op(3, 9, write("b", 6)), op(4, 5, read("b", 6)), op(6, 7, read("a", 5)),
		}, check.Illegal},
		{"nobody there, after a write", []asked{op(1, 2, write("a", 5)), op(3, 4, nobody)}, check.Illegal},
		{"nobody there, after a purge", []asked{op(1, 2, write("a", 5)), op(3, 4, purge), op(5, 6, nobody)}, check.Legal},
		{"a stopped job shows that it is", []asked{op(1, 2, write("a", 5)), op(3, 4, stop), op(5, 6, stopped(read("a", 0)))}, check.Legal},
		{"a stopped job does not show it", []asked{op(1, 2, write("a", 5)), op(3, 4, stop), op(5, 6, read("a", 0))}, check.Illegal},
		{"a write of unknown outcome is seen", []asked{
			op(1, 2, write("a", 5)), op(3, 4, with(write("b", 0), check.OutcomeUnknown)), op(5, 6, read("a", 5)), op(90, 91, read("b", 7)),
		}, check.Legal},
		{"it is seen and then not any more", []asked{
			op(1, 2, write("a", 5)), op(3, 4, with(write("b", 0), check.OutcomeUnknown)), op(5, 6, read("b", 7)), op(7, 8, read("a", 5)),
		}, check.Illegal},
		{"one that was refused is seen", []asked{
			op(1, 2, write("a", 5)), op(3, 4, with(write("b", 0), check.OutcomeRefused)), op(5, 6, read("b", 7)),
		}, check.Illegal},
		{"an index goes back", []asked{op(1, 2, write("a", 5)), op(3, 4, write("b", 4))}, check.Illegal},
		{"a read of another index than was written", []asked{op(1, 2, write("a", 5)), op(3, 4, read("a", 6))}, check.Illegal},
		{"a conflict that is one", []asked{op(1, 2, write("a", 5)), op(3, 4, with(cas("b", 4, 0), check.OutcomeConflict))}, check.Legal},
		{"a conflict that is none", []asked{op(1, 2, write("a", 5)), op(3, 4, with(cas("b", 5, 0), check.OutcomeConflict))}, check.Illegal},
		{"two that both overwrite the same", []asked{
			op(1, 2, write("a", 5)), op(3, 6, cas("b", 5, 6)), op(3, 6, cas("c", 5, 7)),
		}, check.Illegal},
		{"two that both are the first", []asked{op(1, 4, cas("a", 0, 5)), op(2, 3, cas("b", 0, 6))}, check.Illegal},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ops []check.Operation
			var returned []time.Duration
			for i, a := range c.ops {
				a.Client, a.Job = fmt.Sprint(i), "key"
				ops, returned = append(ops, a.Operation), append(returned, a.ret)
			}
			if got := check.Linearize(ops, returned, 100_000); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if len(ops) > 1 {
				if got := check.Linearize(ops, returned, 1); got != check.Undecided {
					t.Errorf("with no budget to speak of: %s", got)
				}
			}
		})
	}
}

// keeper is a job that is kept as it should be: a linearizable one, by a lock that
// is never contended.
type keeper struct {
	rng     *rand.Rand
	index   fleet.Index
	exists  bool
	stopped bool
	tag     string
	modify  fleet.Index
}

// performOperation carries an operation out at once.
func (k *keeper) performOperation(n int) check.Operation {
	o := check.Operation{Client: fmt.Sprint(n % 3), Job: "key", Outcome: check.OutcomeOK}
	k.index++
	switch pick := k.rng.IntN(10); {
	case pick < 5:
		o.Does = check.OpRead
		if o.Tag, o.Modify, o.Stopped = k.tag, k.modify, k.stopped; !k.exists {
			o = check.Operation{Client: o.Client, Job: o.Job, Does: o.Does, Outcome: check.OutcomeNotFound}
		}
	case pick < 9:
		o.Does, o.Tag, o.Modify = check.OpRegister, fmt.Sprint("t", n), k.index
		k.exists, k.stopped, k.tag, k.modify = true, false, o.Tag, k.index
	case !k.exists:
		o.Does, o.Outcome = check.OpDeregister, check.OutcomeNotFound
	default:
		o.Does, o.Modify = check.OpDeregister, k.index
		k.stopped, k.modify = true, k.index
	}
	return o
}

// TestClientsAreJudgedInPieces has clients ask for days: overlapping, some without
// an outcome. The history is cut, judged and forgotten as it goes.
func TestClientsAreJudgedInPieces(t *testing.T) {
	for seed := range uint64(5) {
		k := &keeper{rng: rand.New(rand.NewPCG(seed, 0))}
		m := check.NewMonitor(check.Limits{})
		at := time.Duration(0)
		for n := range 3000 {
			at += time.Duration(k.rng.IntN(20)) * time.Second
			o := k.performOperation(n)
			o.Call = at - time.Duration(k.rng.IntN(5))*time.Second
			if o.Does != check.OpRead && k.rng.IntN(10) == 0 {
				o.Outcome, o.Modify = check.OutcomeUnknown, 0
			}
			m.Observe(check.Observation{At: at + time.Duration(k.rng.IntN(3))*time.Second, Operation: &o})
		}
		if n := m.Remembered(); n > 400 {
			t.Errorf("seed %d: %d things are remembered", seed, n)
		}
		for _, v := range m.Finish(at, check.FleetSnapshot{}) {
			t.Errorf("seed %d: %v\n\t%v", seed, v, v.Evidence)
		}
		for _, v := range m.Verdicts() {
			if v.Invariant == check.Linearizable && (v.Judged < 10 || v.Undecided > 0) {
				t.Errorf("seed %d: %+v", seed, v)
			}
		}
	}
}

// TestStaleReadIsFoundLate hides one stale read in the middle of a long history.
func TestStaleReadIsFoundLate(t *testing.T) {
	k := &keeper{rng: rand.New(rand.NewPCG(7, 0))}
	m := check.NewMonitor(check.Limits{})
	at := time.Duration(0)
	var old check.Operation
	for n := range 600 {
		at += 10 * time.Second
		o := k.performOperation(n)
		o.Call = at - time.Second
		if n == 200 {
			old = check.Operation{Client: "s", Job: "key", Does: check.OpRead, Outcome: check.OutcomeOK, Tag: k.tag, Modify: k.modify, Stopped: k.stopped}
		}
		m.Observe(check.Observation{At: at, Operation: &o})
		if n == 300 {
			at += 10 * time.Second
			old.Call = at - time.Second
			m.Observe(check.Observation{At: at, Operation: &old})
		}
	}
	found := m.Violations()
	if len(found) != 1 || found[0].Invariant != check.Linearizable || found[0].At > at-20*time.Minute {
		t.Fatalf("found %v", found)
	}
	if last := found[0].Evidence[len(found[0].Evidence)-1]; last == "" || found[0].Message == "" {
		t.Error("nothing shows it")
	}
}
