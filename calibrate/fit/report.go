package fit

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
)

// Write prints what was found, for people: the parameters with their
// intervals, the errors of each run, and what is extrapolation. folds are a
// cross-validation; none was made if they are nil.
func (r *Result) Write(w io.Writer, folds []Fold) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	if !r.Complete {
		fmt.Fprintln(tw, "The search was stopped: this is the best so far.")
	}
	fmt.Fprintf(tw, "loss %.4f, before %.4f, in %d simulations of all runs; data %s\n\n", r.Objective, r.Before, r.Evaluations, r.Data)
	fmt.Fprintln(tw, "parameter\tstart\tvalue\t90% interval\tunit\t")
	for i := range r.Parameters {
		f := &r.Parameters[i]
		if f.Identified {
			fmt.Fprintf(tw, "%s\t%.5g\t%.5g\t%.5g to %.5g\t%s\t\n", f.Name, f.Start, f.Value, f.IntervalLow, f.IntervalHigh, f.Unit)
		} else {
			fmt.Fprintf(tw, "%s\t%.5g\t%.5g\tnot identified by this data (%s)\t%s\t\n", f.Name, f.Start, f.Value, f.Why, f.Unit)
		}
	}
	r.writeErrors(tw, folds)
	r.writeCoverage(tw)
	for _, note := range r.Notes {
		fmt.Fprintln(tw, "Note:", note)
	}
	return tw.Flush()
}

// writeErrors prints the errors of the fit, which are no measure of how well it
// predicts, and those of the cross-validation, which are.
func (r *Result) writeErrors(w io.Writer, folds []Fold) {
	if folds == nil {
		fmt.Fprint(w, "\nErrors on the data of the fit itself (training errors; --cross-validate shows how well it predicts):\n")
		fmt.Fprintln(w, "run\tn\tmissing\tTTFT mean\tTTFT |median|\tTPOT mean\tTPOT |median|\t")
		for i := range r.Runs {
			e := &r.Runs[i]
			fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t\n", e.Run, e.Observations, e.Missing,
				percent(e.TTFT.Mean), percent(e.TTFT.Absolute), percent(e.TPOT.Mean), percent(e.TPOT.Absolute))
		}
		return
	}
	fmt.Fprint(w, "\nMedian absolute errors: of a run predicted from the others, and, in brackets, of the fit to all:\n")
	fmt.Fprintln(w, "run\tTTFT\t\tTPOT\t\t")
	for _, f := range folds {
		fmt.Fprintf(w, "%s\t%s\t(%s)\t%s\t(%s)\t\n", f.Run, percent(f.Held.TTFT.Absolute), percent(f.Fitted.TTFT.Absolute),
			percent(f.Held.TPOT.Absolute), percent(f.Fitted.TPOT.Absolute))
	}
}

// fewLong is the share of observations below which those of long requests are few.
const fewLong = 0.05

func (r *Result) writeCoverage(w io.Writer) {
	c := &r.Coverage
	fmt.Fprintf(w, "\nExtrapolation: beyond %d sequences at a time, and beyond %d tokens a request.\n", c.Decodes, c.ContextTokens)
	if c.ContextTokens > LongContext && float64(c.Long) < fewLong*float64(c.Observations) {
		fmt.Fprintf(w, "Few samples: beyond %d tokens a request the fit rests on %d of %d observations, from %d runs.\n",
			LongContext, c.Long, c.Observations, c.LongRuns)
	}
}

func percent(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return fmt.Sprintf("%.2f%%", 100*v)
}
