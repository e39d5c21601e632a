package virtual

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"skerry/chaos/check"
	"skerry/chaos/fabric"
	"skerry/chaos/schedule"
)

// activeFault is a fault that is in force.
type activeFault struct {
	heal func(ctx context.Context) error // nil: there is nothing to heal
	hits func() uint64                   // how often it really did something
	// late says that it does so only after it was inflicted: by the next packet to an
	// address that an edge no longer has, the next question to a clock that is wrong.
	late bool
}

// injectFunc brings a fault about.
type injectFunc func(ctx context.Context, r *run, f schedule.Fault) (activeFault, error)

// faultInjector is how a kind of fault is brought about here, and what it excuses.
type faultInjector struct {
	inject  injectFunc
	effects []check.Effect
}

// faultInjectors has every kind that works in virtual time; a test compares it with the
// schedule's table.
var faultInjectors = func() map[schedule.Kind]faultInjector {
	all := map[schedule.Kind]faultInjector{}
	for _, family := range []map[schedule.Kind]faultInjector{linkInjectors, hubInjectors, edgeInjectors, taskInjectors, userInjectors} {
		maps.Copy(all, family)
	}
	return all
}()

// CanInject reports whether a kind of fault can be brought about in virtual time.
func CanInject(k schedule.Kind) bool { _, ok := faultInjectors[k]; return ok }

// injectScheduledFault brings a fault about, whatever its kind.
func (r *run) injectScheduledFault(ctx context.Context, f schedule.Fault) (activeFault, error) {
	i, ok := faultInjectors[f.Kind]
	if !ok {
		return activeFault{}, fmt.Errorf("inflict %s: it does not work in virtual time", f.Kind)
	}
	f.Params = f.Kind.Fill(f.Params)
	w, err := i.inject(ctx, r, f)
	if err != nil {
		return activeFault{}, fmt.Errorf("inflict %s on %v: %w", f.Kind, f.Targets, err)
	}
	return w, nil
}

// networkFault is the wound of faults of the network.
func networkFault(faults ...*fabric.Fault) activeFault {
	return activeFault{
		heal: func(context.Context) error {
			for _, f := range faults {
				f.Heal()
			}
			return nil
		},
		hits: func() (n uint64) {
			for _, f := range faults {
				n += uint64(f.Hits())
			}
			return n
		},
	}
}

// lateNetworkFault is the wound of a fault of the network that has nothing to heal, and whose
// effect comes with the next packets.
func lateNetworkFault(f *fabric.Fault) activeFault {
	return activeFault{hits: func() uint64 { return uint64(f.Hits()) }, late: true}
}

// instantFault is the wound of what is done at its beginning, and has hit if n is not 0.
func instantFault(n int) activeFault { return activeFault{hits: func() uint64 { return uint64(n) }} }

// combineFaults is the wound of several.
func combineFaults(ws []activeFault) activeFault {
	all := activeFault{hits: func() (n uint64) {
		for _, w := range ws {
			n += w.hits()
		}
		return n
	}}
	all.late = slices.ContainsFunc(ws, func(w activeFault) bool { return w.late })
	if !slices.ContainsFunc(ws, func(w activeFault) bool { return w.heal != nil }) {
		return all
	}
	all.heal = func(ctx context.Context) error {
		var errs []error
		for _, w := range ws {
			if w.heal != nil {
				errs = append(errs, w.heal(ctx))
			}
		}
		return errors.Join(errs...)
	}
	return all
}

// onEdges inflicts something on each edge that the fault names.
func onEdges(each func(ctx context.Context, r *run, e *Edge, f schedule.Fault) (activeFault, error)) injectFunc {
	return func(ctx context.Context, r *run, f schedule.Fault) (activeFault, error) {
		var ws []activeFault
		for _, e := range r.edgesOf(f) {
			w, err := each(ctx, r, e, f)
			if err != nil {
				return activeFault{}, err
			}
			ws = append(ws, w)
		}
		return combineFaults(ws), nil
	}
}

// onHubs inflicts something on each hub that the fault names.
func onHubs(each func(ctx context.Context, r *run, h *Hub, f schedule.Fault) (activeFault, error)) injectFunc {
	return func(ctx context.Context, r *run, f schedule.Fault) (activeFault, error) {
		var ws []activeFault
		for _, h := range r.hubsOf(f) {
			w, err := each(ctx, r, h, f)
			if err != nil {
				return activeFault{}, err
			}
			ws = append(ws, w)
		}
		return combineFaults(ws), nil
	}
}
