package schedule

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry/fleet"
)

// verbs are what users do.
var verbs = []Verb{Run, Scale, Update, Touch, Stop, Purge, Promote}

// readAtLine reads `at 2m …`.
func (p *parser) readAtLine(first token, r *reader) {
	p.readFaultOrStep(first, r, []time.Duration{r.nextDuration("the time")})
}

// readEveryLine reads `every 10m from 5m to 55m …` and `every 10m from 5m 6 times …`.
func (p *parser) readEveryLine(first token, r *reader) {
	period := r.nextDuration("how often")
	r.expectWord("from")
	from := r.nextDuration("the first time")
	times := 0
	if r.acceptWord("to") {
		if to := r.nextDuration("the last time"); !r.failed && period > 0 && to >= from {
			times = int(min((to-from)/period, MaxFaults)) + 1
		}
	} else {
		times = r.nextCount("how many times, or `to` and the last time,", MaxFaults)
		r.expectWord("times")
	}
	switch {
	case r.failed:
	case period == 0 || times == 0:
		r.failAtToken(first, "every 10m from 5m to 55m …", "that is never")
	case period > longest/time.Duration(times):
		r.failAtToken(first, "", "that is over after the longest run")
	}
	if r.failed {
		return
	}
	moments := make([]time.Duration, times)
	for i := range moments {
		moments[i] = from + time.Duration(i)*period
	}
	p.readFaultOrStep(first, r, moments)
}

// readFaultOrStep reads what is done at some moments, by a user or to the fleet.
func (p *parser) readFaultOrStep(first token, r *reader, moments []time.Duration) {
	what := r.nextWord("a fault, or " + strings.Join(toStrings(verbs), ", "))
	if r.failed {
		return
	}
	if p.faults += len(moments); p.faults > MaxFaults+MaxSteps {
		r.failAtToken(first, "", "more than %d faults and steps", MaxFaults+MaxSteps)
		return
	}
	if slices.Contains(verbs, Verb(what.text)) {
		step := readStep(r, Verb(what.text))
		if r.expectEndOfLine(""); r.failed {
			return
		}
		for _, step.At = range moments {
			p.s.Steps = append(p.s.Steps, step)
			p.places[PartStep] = append(p.places[PartStep], first)
		}
		return
	}
	kind := Kind(what.text)
	if _, known := kind.Info(); !known {
		r.failWithError(what, newUnknownError("fault", what.text, toStrings(append(Kinds(), verbsAsKinds(verbs)...))))
		return
	}
	f := readFault(r, kind)
	if r.failed {
		return
	}
	for _, f.At = range moments {
		p.s.Faults = append(p.s.Faults, f)
		p.places[PartFault] = append(p.places[PartFault], first)
	}
}

func verbsAsKinds(verbs []Verb) []Kind {
	out := make([]Kind, len(verbs))
	for i := range verbs {
		out[i] = Kind(verbs[i])
	}
	return out
}

func readStep(r *reader, verb Verb) Step {
	step := Step{Verb: verb, Job: fleet.JobID(r.nextLabel("the name of the job").text)}
	if verb == Scale {
		r.expectWord("to")
		step.Count = r.nextCount("the count", fleet.JobCountMax)
	}
	return step
}

// readFault reads targets, `for`, and parameters, in any order.
func readFault(r *reader, kind Kind) Fault {
	f := Fault{Kind: kind}
	info, _ := kind.Info()
	seen := map[string]bool{}
	for !r.isAtEnd() {
		word := r.nextWord("a target")
		if word.text == "for" {
			if f.For != 0 {
				r.failAtToken(word, "", "`for` is there twice")
			}
			f.For = r.nextDuration("the time after `for`")
			continue
		}
		name, value, valued := strings.Cut(word.text, "=")
		i := slices.IndexFunc(info.Params, func(p Param) bool {
			return valued && p.Words == nil && p.Name == name || !valued && slices.Contains(p.Words, word.text)
		})
		switch {
		case i >= 0:
			param := info.Params[i]
			if seen[param.Name] {
				r.failAtToken(word, "", "%s is there twice", param.Name)
			}
			seen[param.Name] = true
			if !valued {
				value = word.text
			}
			if err := param.read(&f.Params, value); err != nil {
				r.failAtToken(word, param.Doc, "%s %s", param.Name, err)
			}
		case valued:
			r.failAtToken(word, kind.Usage(), "%s takes no %s", kind, name)
		default:
			f.Targets = append(f.Targets, r.expandTargets(word)...)
		}
	}
	f.Params = kind.Fill(f.Params)
	return f
}

// expandTargets reads one target, or several: edge-1..4.
func (r *reader) expandTargets(word token) []string {
	first, last, several := strings.Cut(word.text, "..")
	if !several {
		if err := checkLabel(word.text); err != nil {
			r.failAtToken(word, "", "a target %s: %q", err, word.text)
		}
		return []string{word.text}
	}
	cut := strings.LastIndexByte(first, '-') + 1
	lo, err1 := strconv.Atoi(first[cut:])
	hi, err2 := strconv.Atoi(last)
	if cut == 0 || err1 != nil || err2 != nil || lo < 1 || hi < lo || hi > MaxEdges {
		r.failAtToken(word, "edge-1..4", "%q is no range of targets", word.text)
		return nil
	}
	var names []string
	for n := lo; n <= hi; n++ {
		names = append(names, first[:cut]+strconv.Itoa(n))
	}
	return names
}

// sortStepsAndFaults puts steps and faults in order of time, and with them where they stand.
func (p *parser) sortStepsAndFaults() {
	p.s.Steps, p.places[PartStep] = sortByTime(p.s.Steps, p.places[PartStep], func(s Step) time.Duration { return s.At })
	p.s.Faults, p.places[PartFault] = sortByTime(p.s.Faults, p.places[PartFault], func(f Fault) time.Duration { return f.At })
}

func sortByTime[T any](items []T, places []token, at func(T) time.Duration) ([]T, []token) {
	order := make([]int, len(items))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(at(items[a]), at(items[b])) })
	sorted, where := make([]T, 0, len(items)), make([]token, 0, len(items))
	for _, i := range order {
		sorted, where = append(sorted, items[i]), append(where, places[i])
	}
	if len(items) == 0 {
		return nil, nil
	}
	return sorted, where
}

// validateSchedule reports what is wrong with the whole, at the lines that say it. Where
// lines could not be read, only what stands for itself is looked at: the rest may
// miss just these.
func (p *parser) validateSchedule() {
	var problems Problems
	if len(p.diags) == 0 {
		problems = p.s.Validate()
	} else {
		alone := Schedule{Length: longest, Jobs: p.s.Jobs}
		alone.checkJobs(&problems)
	}
	for _, problem := range problems {
		where := token{}
		if places := p.places[problem.Part]; problem.Index < len(places) {
			where = places[problem.Index]
		}
		if problem.Line > 0 { // within the job file that begins below
			where = token{line: where.line + problem.Line, column: problem.Column}
		}
		p.addDiagnostic(where, problem.Message, problem.Hint)
	}
}
