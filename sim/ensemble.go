package sim

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"fleetsim/sim/record"
)

// RunAll runs independent setups on up to workers goroutines (0: one a CPU)
// and returns their records in the order of the setups, whatever order they
// ended in. After each, done is called, one call at a time. When ctx ends, no
// further setup is begun; the records of those not run are nil and the error
// is ctx's. The first setup that cannot be run ends everything likewise.
func RunAll(ctx context.Context, setups []Setup, workers int, done func()) ([]*record.Phase, error) {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	phases := make([]*record.Phase, len(setups))
	var next atomic.Int64
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range min(workers, len(setups)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(setups) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				p, err := Run(setups[i])
				if err != nil {
					cancel(err)
					return
				}
				mu.Lock()
				phases[i] = p
				if done != nil {
					done()
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return phases, context.Cause(ctx)
}
