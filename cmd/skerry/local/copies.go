package local

import (
	"cmp"
	"fmt"
	"time"

	"skerry/cmd/console"
	"skerry/edge/local"
	"skerry/fleet"
)

// writeCopies lists the rendered templates, variables and identities that the edge keeps for some allocations, with their ages. Unless
// all are asked for, these are the templates that cannot be rendered again, and without a link the variables.
func writeCopies(out *console.Output, s local.Status, allocs []local.Alloc, all bool, now time.Time) {
	t := console.NewTable("ID", "TASK", "COPY", "AGE")
	add := func(a *local.Alloc, shown bool, task, what, age string) {
		if shown {
			t.Add(fleet.Short(a.ID), task, what, age)
		}
	}
	for i := range allocs {
		a := &allocs[i]
		for _, k := range a.Templates {
			add(a, all || k.Failing != "", k.Task, k.Name, templateAge(k, now))
		}
		for _, v := range a.Variables {
			add(a, all || s.Link.State != "connected", "", "variable "+v.Path, variableAge(v, now))
		}
		for _, k := range a.Identities {
			add(a, all, cmp.Or(k.Task, "the group"), "identity "+k.Name, identityAge(k, now))
		}
	}
	if len(t.Rows) > 0 {
		out.Line("")
		out.Table(t)
	}
}

// templateAge says how old a rendering is, and why there is no newer one.
func templateAge(k fleet.KeptTemplate, now time.Time) string {
	age := "rendered " + console.Ago(now, k.Rendered)
	if k.Failing == "" || k.Since == nil {
		return age
	}
	return fmt.Sprintf("%s; cannot be rendered since %s: %s", age, console.LocalTime(*k.Since), k.Failing)
}

// variableAge says when a variable was stored, by the clock of a hub, and how old it is by the edge's clock if that is not behind.
func variableAge(v fleet.VariableMeta, now time.Time) string {
	if v.ModifyTime == 0 {
		return fmt.Sprintf("of index %d; the hub has not said when it was stored", v.ModifyIndex)
	}
	return ageOf(console.Nano(v.ModifyTime), now)
}

// identityAge says when a token was signed, and until when it is valid.
func identityAge(k local.Identity, now time.Time) string {
	age := ageOf(k.Issued, now)
	if k.Offline {
		age += ", signed by this edge"
	}
	switch {
	case k.Expires == nil:
		return age
	case now.Before(*k.Expires):
		return age + ", valid until " + console.LocalTime(*k.Expires)
	}
	return age + ", expired at " + console.LocalTime(*k.Expires)
}

// ageOf says of when something is, and how old it is unless the clock says that it is of the future.
func ageOf(at, now time.Time) string {
	text := "of " + console.LocalTime(at)
	if now.Before(at) {
		return text
	}
	return fmt.Sprintf("%s (%s old)", text, console.Span(now.Sub(at)))
}
