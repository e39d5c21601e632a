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

// wound is a fault that is in force.
type wound struct {
	heal func(ctx context.Context) error // nil: there is nothing to heal
	hits func() uint64                   // how often it really did something
	// late says that it does so only after it was inflicted: by the next packet to an
	// address that an edge no longer has, the next question to a clock that is wrong.
	late bool
}

// inflict brings a fault about.
type inflict func(ctx context.Context, r *run, f schedule.Fault) (wound, error)

// injury is how a kind of fault is brought about here, and what it excuses.
type injury struct {
	inflict inflict
	effects []check.Effect
}

// injuries has every kind that works in virtual time; a test compares it with the
// schedule's table.
var injuries = func() map[schedule.Kind]injury {
	all := map[schedule.Kind]injury{}
	for _, family := range []map[schedule.Kind]injury{linkInjuries, hubInjuries, edgeInjuries, taskInjuries, userInjuries} {
		maps.Copy(all, family)
	}
	return all
}()

// Injures reports whether a kind of fault can be brought about in virtual time.
func Injures(k schedule.Kind) bool { _, ok := injuries[k]; return ok }

// inflict brings a fault about, whatever its kind.
func (r *run) inflict(ctx context.Context, f schedule.Fault) (wound, error) {
	i, ok := injuries[f.Kind]
	if !ok {
		return wound{}, fmt.Errorf("inflict %s: it does not work in virtual time", f.Kind)
	}
	f.Params = f.Kind.Fill(f.Params)
	w, err := i.inflict(ctx, r, f)
	if err != nil {
		return wound{}, fmt.Errorf("inflict %s on %v: %w", f.Kind, f.Targets, err)
	}
	return w, nil
}

// ofNetwork is the wound of faults of the network.
func ofNetwork(faults ...*fabric.Fault) wound {
	return wound{
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

// traced is the wound of a fault of the network that has nothing to heal, and whose
// effect comes with the next packets.
func traced(f *fabric.Fault) wound {
	return wound{hits: func() uint64 { return uint64(f.Hits()) }, late: true}
}

// once is the wound of what is done at its beginning, and has hit if n is not 0.
func once(n int) wound { return wound{hits: func() uint64 { return uint64(n) }} }

// together is the wound of several.
func together(ws []wound) wound {
	all := wound{hits: func() (n uint64) {
		for _, w := range ws {
			n += w.hits()
		}
		return n
	}}
	all.late = slices.ContainsFunc(ws, func(w wound) bool { return w.late })
	if !slices.ContainsFunc(ws, func(w wound) bool { return w.heal != nil }) {
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
func onEdges(each func(ctx context.Context, r *run, e *Edge, f schedule.Fault) (wound, error)) inflict {
	return func(ctx context.Context, r *run, f schedule.Fault) (wound, error) {
		var ws []wound
		for _, e := range r.edgesOf(f) {
			w, err := each(ctx, r, e, f)
			if err != nil {
				return wound{}, err
			}
			ws = append(ws, w)
		}
		return together(ws), nil
	}
}

// onHubs inflicts something on each hub that the fault names.
func onHubs(each func(ctx context.Context, r *run, h *Hub, f schedule.Fault) (wound, error)) inflict {
	return func(ctx context.Context, r *run, f schedule.Fault) (wound, error) {
		var ws []wound
		for _, h := range r.hubsOf(f) {
			w, err := each(ctx, r, h, f)
			if err != nil {
				return wound{}, err
			}
			ws = append(ws, w)
		}
		return together(ws), nil
	}
}
