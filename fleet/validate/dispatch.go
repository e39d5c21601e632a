package validate

import (
	"slices"

	"skerry/fleet"
)

// Dispatch reports what is wrong with a payload and meta that a parameterized job
// is to be dispatched with.
func Dispatch(j *fleet.Job, payload []byte, meta map[string]string) error {
	if !j.IsParameterized() {
		return fleet.Errorf(fleet.CodeInvalid, "dispatch job %q: it is not parameterized", j.ID).WithHint("only a job with a parameterized block can be dispatched")
	}
	p := j.ParameterizedJob
	var wrong fleet.Problems
	add := func(hint, format string, args ...any) { wrong.AddHint("", hint, format, args...) }
	switch {
	case p.Payload == fleet.PayloadRequired && len(payload) == 0:
		add(`job dispatch reads it from a file, or from the standard input as "-"`, "dispatch job %q: it needs a payload", j.ID)
	case p.Payload == fleet.PayloadForbidden && len(payload) > 0:
		add("its parameterized block says forbidden", "dispatch job %q: it takes no payload", j.ID)
	case len(payload) > fleet.MaxPayload:
		add("give its tasks an address to fetch it from", "dispatch job %q: the payload has %d bytes, at most %d are allowed", j.ID, len(payload), fleet.MaxPayload)
	}
	var unexpected, missing []string
	for k := range meta {
		if !slices.Contains(p.MetaRequired, k) && !slices.Contains(p.MetaOptional, k) {
			unexpected = append(unexpected, k)
		}
	}
	for _, k := range p.MetaRequired {
		if _, ok := meta[k]; !ok {
			missing = append(missing, k)
		}
	}
	slices.Sort(unexpected)
	if len(missing) > 0 {
		add("job dispatch takes it as --meta KEY=VALUE", "dispatch job %q: required meta is missing: %q", j.ID, missing)
	}
	if len(unexpected) > 0 {
		add("its parameterized block lists the allowed keys: meta_required, meta_optional", "dispatch job %q: it does not accept these meta keys: %q", j.ID, unexpected)
	}
	return wrong.Err()
}
