package workload

import (
	"math/rand/v2"

	"gonum.org/v1/gonum/stat/distuv"

	"fleetsim/simtime"
)

// A Stage is a span of constant mean rate, in arrivals per second.
type Stage struct {
	Duration simtime.Time
	Rate     float64
}

// Arrivals yields the instants of an open-loop arrival process, in order.
type Arrivals struct {
	stages []Stage
	gap    func() float64 // mean 1
	limit  int            // arrivals in all; 0: as many as the stages hold

	stage   int
	begin   simtime.Time // of the current stage
	elapsed float64      // mean gaps since the stage began, of the next arrival
	count   int
	steady  bool
}

// Constant spaces arrivals evenly: the k-th of a stage at k/rate after it
// begins, counted from 0. A positive limit ends the process after that many.
func Constant(stages []Stage, limit int) *Arrivals {
	return &Arrivals{stages: stages, limit: limit, steady: true, gap: func() float64 { return 1 }}
}

// Poisson draws exponential gaps.
func Poisson(stages []Stage, limit int, rng *rand.Rand) *Arrivals {
	return (&Arrivals{stages: stages, limit: limit, gap: rng.ExpFloat64}).start()
}

// Gamma draws gaps from a gamma distribution with the given shape: 1 is
// Poisson, below 1 burstier, above 1 more regular. This is the burstiness of
// `vllm bench serve`.
func Gamma(stages []Stage, limit int, shape float64, rng *rand.Rand) *Arrivals {
	gamma := distuv.Gamma{Alpha: shape, Beta: shape, Src: rng}
	return (&Arrivals{stages: stages, limit: limit, gap: gamma.Rand}).start()
}

// start draws the first gap; a random process has no arrival at its origin.
func (a *Arrivals) start() *Arrivals {
	a.elapsed = a.gap()
	return a
}

// Next is the instant of the next arrival, or false after the last. A gap that
// crosses into the next stage is stretched to that stage's rate, as time runs
// at the rate of the stage.
func (a *Arrivals) Next() (simtime.Time, bool) {
	for a.stage < len(a.stages) && (a.limit == 0 || a.count < a.limit) {
		st := a.stages[a.stage]
		if st.Rate > 0 {
			at := simtime.FromSeconds(a.elapsed / st.Rate)
			if at < st.Duration || st.Duration == 0 {
				a.elapsed += a.gap()
				a.count++
				return min(a.begin+min(at, simtime.Horizon), simtime.Horizon), true
			}
		}
		a.leave(st)
	}
	return 0, false
}

// leave goes to the next stage with what is left of the current gap; even
// spacing starts anew there.
func (a *Arrivals) leave(st Stage) {
	a.stage++
	a.begin += st.Duration
	if a.steady {
		a.elapsed = 0
		return
	}
	a.elapsed = max(a.elapsed-st.Duration.Seconds()*st.Rate, 0)
}

// Count is how many arrivals Next has yielded.
func (a *Arrivals) Count() int { return a.count }
