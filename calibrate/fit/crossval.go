package fit

import (
	"context"
	"errors"
	"fmt"

	"fleetsim/model"
)

// A Fold is one part of a cross-validation: what the parameters that were
// fitted to the other runs predict for a run.
type Fold struct {
	Run    string
	Fitted Errors // of the run in the fit to all runs
	Held   Errors // of the run predicted from the others
}

// CrossValidate fits to all runs but one, predicts that one, and does so for
// each. all is a fit to all runs with the same options. Runs without which too
// little is left to fit to are an error.
func CrossValidate(ctx context.Context, runs []Run, o Options, all *Result) ([]Fold, error) {
	if len(runs) < 2 {
		return nil, errors.New("cross-validation needs at least two runs (phases): one is predicted from the others")
	}
	var folds []Fold
	for i := range runs {
		rest := make([]Run, 0, len(runs)-1)
		rest = append(append(rest, runs[:i]...), runs[i+1:]...)
		r, err := Fit(ctx, rest, o)
		if err != nil {
			return folds, fmt.Errorf("without %s: %w", runs[i].Name, err)
		}
		if !r.Complete {
			return folds, ctx.Err()
		}
		held, err := r.Predict(runs[i])
		if err != nil {
			return folds, err
		}
		folds = append(folds, Fold{runs[i].Name, all.Runs[i], held})
	}
	return folds, nil
}

// Predict simulates a run under the fitted parameters and says how far it is
// from what was measured.
func (r *Result) Predict(run Run) (Errors, error) {
	p, err := r.Profile(run.Environment, "")
	if err != nil {
		return Errors{}, err
	}
	return Measure(run, p)
}

// Measure simulates a run under a profile and says how far it is from what was
// measured.
func Measure(run Run, p *model.Profile) (Errors, error) {
	answers, plan, _, err := run.simulate(p)
	if err != nil {
		return Errors{}, err
	}
	one := problem{runs: []Run{run}, observations: observe(0, &run, plan), blur: 1}
	one.first = []int{0, len(one.observations)}
	return one.errors(&point{values: predict(one.observations, answers)})[0], nil
}
