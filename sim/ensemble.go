package sim

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"fleetsim/sim/record"
)

// RunAll runs setups on up to workers goroutines (0: one a CPU) and returns
// their records in the order of the setups, whatever order they ended in. Setups
// are independent, but that one with Continue goes on where the setup before it
// in the list ended. After each, done is called, one call at a time. When ctx
// ends, so do the runs; the records of those not complete are nil and the error is
// ctx's. The first setup that cannot be run ends everything likewise.
func RunAll(ctx context.Context, setups []Setup, workers int, done func()) ([]*record.Phase, error) {
	chains, err := chainsOf(setups)
	if err != nil {
		return nil, err
	}
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	phases := make([]*record.Phase, len(setups))
	var mu sync.Mutex
	finished := func(i int, p *record.Phase) {
		mu.Lock()
		defer mu.Unlock()
		phases[i] = p
		if done != nil {
			done()
		}
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(workers, len(chains)) {
		wg.Go(func() {
			var runner Runner
			for i := int(next.Add(1)) - 1; i < len(chains) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				first := chains[i].first
				if err := runner.runChain(ctx, setups[first:chains[i].end], func(k int, p *record.Phase) { finished(first+k, p) }); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return phases, context.Cause(ctx)
}

// A chain is a stretch of the list of setups, each of which but the first
// continues the one before.
type chain struct{ first, end int }

func chainsOf(setups []Setup) ([]chain, error) {
	var chains []chain
	for i := range setups {
		switch {
		case !setups[i].Continue:
			chains = append(chains, chain{i, i + 1})
		case len(chains) == 0:
			return nil, fmt.Errorf("setup %q has no setup before it to continue", setups[i].Phase)
		default:
			chains[len(chains)-1].end++
		}
	}
	return chains, nil
}

// runChain runs setups one after the other in one cluster, until ctx ends.
func (n *Runner) runChain(ctx context.Context, setups []Setup, done func(int, *record.Phase)) error {
	r, err := newRun(setups[0])
	if err != nil {
		return err
	}
	r.client.free, n.spare = n.spare, nil
	for i := 0; i < len(setups) && ctx.Err() == nil; i++ {
		if i > 0 {
			if err := r.goOn(setups[i]); err != nil {
				return err
			}
		}
		phase, err := r.simulate(ctx)
		if err != nil {
			return err
		}
		if setups[i].Done != nil {
			setups[i].Done()
		}
		done(i, phase)
	}
	n.spare = r.client.spare()
	return nil
}
