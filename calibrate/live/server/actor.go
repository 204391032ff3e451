package server

import (
	"sync"
	"time"

	"fleetsim/simtime"
)

// An actor is the one goroutine that touches the cluster. It lets time pass
// there as the clock says, and does what others ask it to in between.
type actor struct {
	cluster  *Cluster
	clock    Clock
	commands chan func(now simtime.Time)
	quit     chan struct{}
	stopping sync.Once
	done     chan struct{}
}

func newActor(c *Cluster, clock Clock) *actor {
	a := &actor{cluster: c, clock: clock, commands: make(chan func(simtime.Time), 1024),
		quit: make(chan struct{}), done: make(chan struct{})}
	go a.loop()
	return a
}

// stop ends the goroutine; what is asked of it afterwards is not done.
func (a *actor) stop() {
	a.stopping.Do(func() { close(a.quit) })
	<-a.done
}

// tell has f done soon, and reports false if the actor has stopped.
func (a *actor) tell(f func(now simtime.Time)) bool {
	select {
	case a.commands <- f:
		return true
	case <-a.done:
		return false
	}
}

// ask has f done and waits for it.
func (a *actor) ask(f func(now simtime.Time)) bool {
	answered := make(chan struct{})
	if !a.tell(func(now simtime.Time) { f(now); close(answered) }) {
		return false
	}
	select {
	case <-answered:
		return true
	case <-a.done:
		return false
	}
}

func (a *actor) loop() {
	defer close(a.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next := a.cluster.Next()
		wait := time.Hour // nothing is due: look again now and then
		if next != simtime.Never {
			wait = min(wait, a.clock.Wait(next))
		}
		if wait > 0 {
			timer.Reset(wait)
			select {
			case f := <-a.commands:
				f(a.clock.Now())
			case <-timer.C:
			case <-a.quit:
				return
			}
			continue
		}
		// Something is due. What others ask goes first: it came before now.
		select {
		case f := <-a.commands:
			f(a.clock.Now())
		case <-a.quit:
			return
		default:
			a.cluster.Advance(next)
			a.clock.Reached(next)
		}
	}
}
