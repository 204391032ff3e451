package calibrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"fleetsim/model"
	"fleetsim/sim"
	"fleetsim/sim/scenario"
	"fleetsim/spelling"
	"fleetsim/strict"
)

// A Plan says how measured phases are simulated.
type Plan struct {
	Study *scenario.Study
	runs  []plannedRun // one a phase of Study
}

// A plannedRun is what is known of one phase of a plan.
type plannedRun struct {
	measured *Measured // nil: nothing beyond the study's own record
	extra    bool      // simulated only because another phase continues it
}

// PlanStudy simulates a study as it is, beside its own records.
func PlanStudy(study *scenario.Study) *Plan {
	return &Plan{Study: study, runs: make([]plannedRun, len(study.Phases))}
}

// PlanRuns matches measured phases with what they are simulated by: the phases
// of that name in a study, or one scenario for all. sets are overrides as in
// scenario.LoadWith.
//
// With a scenario each phase needs a policy: policies has it by phase, or for all
// phases under "", or else the phase record or the scenario's only policy says it.
// The seed is the scenario's, but that of a simulated record is its own.
func PlanRuns(nameOrPath string, sets []string, policies map[string]string, measured []*Measured) (*Plan, error) {
	file, data, err := scenario.Open(nameOrPath)
	if err != nil {
		return nil, err
	}
	doc, err := strict.Parse(file, data)
	if err != nil {
		return nil, err
	}
	for _, phase := range sortedKeys(policies) {
		if phase != "" && !slices.ContainsFunc(measured, func(m *Measured) bool { return m.phase == phase }) {
			return nil, fmt.Errorf("a policy is given for the phase %q, which was not measured%s", phase, spelling.Suggest(phase, phaseNames(measured)))
		}
	}
	if !doc.Has("phases") {
		return planScenario(nameOrPath, sets, policies, measured)
	}
	if len(policies) > 0 {
		return nil, fmt.Errorf("%s: a study names the policy of each phase itself: no policy may be given", file)
	}
	study, err := scenario.ParseStudy(file, data, sets)
	if err != nil {
		return nil, err
	}
	return planStudy(file, study, measured)
}

func phaseNames(measured []*Measured) []string {
	var names []string
	for _, m := range measured {
		names = append(names, m.phase)
	}
	return names
}

// planStudy keeps the measured phases, and those that one of them continues.
func planStudy(file string, study *scenario.Study, measured []*Measured) (*Plan, error) {
	var names []string
	of := make([]*Measured, len(study.Phases))
	for _, p := range study.Phases {
		names = append(names, p.Name)
	}
	var problems []error
	for _, m := range measured {
		at := slices.Index(names, m.phase)
		switch {
		case at < 0:
			problems = append(problems, fmt.Errorf("%s: phase %q: %s has no phase of this name%s", m.Source, m.phase, file, spelling.Suggest(m.phase, names)))
		case of[at] != nil:
			problems = append(problems, fmt.Errorf("%s: phase %q: it was read from %s already", m.Source, m.phase, of[at].Source))
		default:
			of[at] = m
		}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	plan := &Plan{Study: &scenario.Study{Name: study.Name, Description: study.Description}}
	needed := false // by the phase after this one
	for i := len(study.Phases) - 1; i >= 0; i-- {
		needed = needed || of[i] != nil
		if !needed {
			continue
		}
		plan.Study.Phases = append(plan.Study.Phases, study.Phases[i])
		plan.runs = append(plan.runs, plannedRun{measured: of[i], extra: of[i] == nil})
		needed = study.Phases[i].Continue
	}
	slices.Reverse(plan.Study.Phases)
	slices.Reverse(plan.runs)
	return plan, nil
}

// planScenario simulates every phase by one scenario.
func planScenario(nameOrPath string, sets []string, policies map[string]string, measured []*Measured) (*Plan, error) {
	base, err := scenario.LoadWith(nameOrPath, sets)
	if err != nil {
		return nil, err
	}
	plan := &Plan{Study: &scenario.Study{Name: base.Name, Description: base.Description}}
	labels := labelsOf(measured)
	var problems []error
	for i, m := range measured {
		policy, place := cmp.Or(policies[m.phase], policies[""]), "--policy"
		if policy == "" {
			policy, place = m.Policy(), "its policy"
		}
		if policy == "" && len(base.Policies) == 1 {
			policy = base.Policies[0]
		}
		if policy == "" {
			problems = append(problems, fmt.Errorf("%s: phase %q: its records do not say the policy it ran under: name it (--policy), one of %s", m.Source, m.phase, strings.Join(base.Policies, ", ")))
			continue
		}
		sc, err := scenario.LoadWith(nameOrPath, scenario.WithPolicies(sets, policy))
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: phase %q: %w", m.Source, m.phase, scenario.PoliciesAt(place, err)))
			continue
		}
		if m.Record != nil && m.Record.Simulated {
			sc.Seed = m.Record.Seed.Or(sc.Seed)
		}
		if slices.Contains(labels[:i], labels[i]) {
			problems = append(problems, fmt.Errorf("%s: phase %q is there twice", m.Source, labels[i]))
		}
		plan.Study.Phases = append(plan.Study.Phases, scenario.Phase{Name: labels[i], Policy: policy, Scenario: sc})
		plan.runs = append(plan.runs, plannedRun{measured: m})
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return plan, nil
}

// labelsOf are the phases' names, with policy and seed where several have one
// name.
func labelsOf(measured []*Measured) []string {
	var labels []string
	for _, m := range measured {
		label := m.phase
		same := func(o *Measured) bool { return o != m && o.phase == m.phase }
		if m.Record != nil && slices.ContainsFunc(measured, same) {
			label += " " + m.Record.Route
			if slices.ContainsFunc(measured, func(o *Measured) bool { return same(o) && o.Policy() == m.Policy() }) {
				label += " seed " + m.Record.Seed.String()
			}
		}
		labels = append(labels, label)
	}
	return labels
}

// CompareRuns is CompareStudy by a plan: with the measured request records, and
// keeping those of the simulation, so that distributions are compared too and Plot
// has something to draw. Phases that are simulated only because another continues
// them are left out of the result.
func CompareRuns(ctx context.Context, plan *Plan, profile func(*scenario.Scenario) (*model.Profile, error), repeat, workers int, done func()) (*StudyComparison, error) {
	study := *plan.Study
	study.Phases = slices.Clone(study.Phases)
	traces := make([]phaseTraces, len(study.Phases))
	for i, run := range plan.runs {
		traces[i].simulated = make([]*trace, repeat)
		m := run.measured
		if m == nil {
			continue
		}
		study.Phases[i].Measured = m.summary(sim.SLO(study.Phases[i].Scenario.SLO))
		if m.Requests != nil {
			traces[i].measured = traceOf(m.Requests)
			traces[i].measured.gauges = m.gauges
		}
	}
	c, err := compareStudy(ctx, &study, profile, repeat, workers, done, func(phase, run int, s *sim.Setup) {
		t := &trace{}
		traces[phase].simulated[run] = t
		s.Each = t.add
		if run == 0 {
			s.Sample = func(s sim.Sample) { t.gauges.add(&s) }
		}
	})
	if err != nil {
		return nil, err
	}
	var asked []PhaseComparison
	for i, p := range c.Phases {
		p.traces = traces[i]
		if !plan.runs[i].extra {
			asked = append(asked, p)
		}
	}
	c.Phases = asked
	c.assess()
	return c, nil
}
