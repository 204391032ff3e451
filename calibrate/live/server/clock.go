package server

import (
	"sync"
	"time"

	"fleetsim/simtime"
)

// A Clock relates the cluster's time to the world's.
type Clock interface {
	// Now is the cluster's time.
	Now() simtime.Time
	// Wait is how long, in the world, until the cluster's time is t; 0 or less
	// when it has come.
	Wait(t simtime.Time) time.Duration
	// Reached says that everything up to t has happened.
	Reached(t simtime.Time)
}

// NewClock runs at speed times the pace of now, which must be monotonic, from 0
// at once.
func NewClock(now func() time.Time, speed float64) Clock {
	return &pacedClock{now: now, start: now(), speed: speed}
}

type pacedClock struct {
	now   func() time.Time
	start time.Time
	speed float64
}

func (c *pacedClock) Now() simtime.Time {
	return simtime.FromSeconds(c.now().Sub(c.start).Seconds() * c.speed)
}

func (c *pacedClock) Wait(t simtime.Time) time.Duration {
	// A nanosecond more, so that rounding never wakes early.
	return time.Duration((t-c.Now()).Seconds()/c.speed*1e9) + 1
}

func (c *pacedClock) Reached(simtime.Time) {}

// NewMaxClock is never waited for: its time is that of the latest thing that
// happened, and what is next happens at once.
func NewMaxClock() Clock { return &maxClock{} }

type maxClock struct {
	mu  sync.Mutex
	now simtime.Time
}

func (c *maxClock) Now() simtime.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *maxClock) Wait(simtime.Time) time.Duration { return 0 }

func (c *maxClock) Reached(t simtime.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = max(c.now, t)
}
