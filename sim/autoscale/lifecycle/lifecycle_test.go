package lifecycle

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/random"
	"fleetsim/sim/autoscale"
	"fleetsim/sim/scenario"
	"fleetsim/simtime"
)

const second = simtime.Second

func constant(seconds int) scenario.Span {
	return scenario.Span{Mean: scenario.Duration{Time: simtime.Time(seconds) * second}}
}

// thirty is 1 + 2 + 20 + 5 + 2 = 30 s to ready.
var thirty = scenario.Lifecycle{
	Schedule: constant(1), ImagePull: constant(2), ModelLoad: constant(20), Compile: constant(5), Readiness: constant(2),
}

func newDeployment(t testing.TB, cfg Config) *Deployment {
	t.Helper()
	d, err := New(cfg, random.Stream(1, "lifecycle"))
	require.NoError(t, err)
	return d
}

// lines writes events as "30s #2 readiness>ready".
func lines(events []Event) []string {
	out := []string{}
	for _, e := range events {
		out = append(out, fmt.Sprintf("%v #%d %v>%v", e.At, e.ID, e.From, e.To))
	}
	return out
}

// short writes counts as desired/created/pending/starting/ready/terminating.
func short(c Counts) string {
	return fmt.Sprintf("%d/%d/%d/%d/%d/%d", c.Desired, c.Created, c.Pending, c.Starting, c.Ready, c.Terminating)
}

func TestStages(t *testing.T) {
	d := newDeployment(t, Config{Replicas: 1, Stages: thirty})
	assert.Equal(t, []string{"10s #1 none>pending", "10s #1 pending>scheduling"}, lines(d.Scale(10*second, 2)))
	assert.Equal(t, "2/2/0/1/1/0", short(d.Counts()))
	for _, want := range []string{
		"11s #1 scheduling>image-pull",
		"13s #1 image-pull>model-load",
		"33s #1 model-load>compile",
		"38s #1 compile>readiness",
		"40s #1 readiness>ready",
	} {
		at, id := d.Next()
		assert.Equal(t, 1, id)
		assert.Empty(t, d.Advance(at-1))
		assert.Equal(t, []string{want}, lines(d.Advance(at)))
	}
	at, id := d.Next()
	assert.Equal(t, simtime.Never, at)
	assert.Equal(t, -1, id)
	assert.Equal(t, "2/2/0/0/2/0", short(d.Counts()))
}

// TestNoGPULeft is the shape of the measured apa-cold wave: three GPUs, four
// desired: one ready, two starting, one pending.
func TestNoGPULeft(t *testing.T) {
	d := newDeployment(t, Config{Replicas: 1, GPUs: 3, Stages: thirty})
	d.Scale(0, 4)
	assert.Equal(t, Counts{Desired: 4, Created: 4, Pending: 1, Starting: 2, Ready: 1, GPUs: 3}, d.Counts())
	d.Advance(1000 * second)
	assert.Equal(t, Counts{Desired: 4, Created: 4, Pending: 1, Ready: 3, GPUs: 3}, d.Counts())

	// A terminating replica holds its GPU, and is replaced at once: two pending.
	assert.Equal(t, []string{"1000s #0 ready>terminating", "1000s #4 none>pending"}, lines(d.Delete(1000*second, 0, true)))
	assert.Equal(t, Counts{Desired: 4, Created: 4, Pending: 2, Ready: 2, Terminating: 1, GPUs: 3}, d.Counts())
	// When it is gone, the one pending longest has its GPU.
	assert.Equal(t, []string{"1020s #0 terminating>gone", "1020s #3 pending>scheduling"}, lines(d.Finish(1020*second, 0)))
	_, there := d.Replica(0)
	assert.False(t, there)

	// A GPU more serves the other.
	assert.Equal(t, []string{"1021s #4 pending>scheduling"}, lines(d.AddGPUs(1021*second, 1)[1:]))
	assert.Equal(t, 4, d.Counts().GPUs)
}

func TestScaleDownOrder(t *testing.T) {
	d := newDeployment(t, Config{Replicas: 1, GPUs: 6, Stages: thirty})
	at := func(s int) simtime.Time { return simtime.Time(s) * second }
	d.Scale(at(0), 2)          // #1: ready at 30
	d.Scale(at(10), 4)         // #2, #3: ready at 40
	d.Crash(at(50), 1, at(60)) // #1: ready anew since 60, one restart
	d.Scale(at(80), 5)         // #4: at 100 in model-load
	d.Scale(at(98), 6)         // #5: at 100 in image-pull
	d.Scale(at(100), 8)        // #6, #7: pending
	require.Equal(t, "8/8/2/2/4/0", short(d.Counts()))

	// Pending first, the younger of equals before the older; then image-pull,
	// model-load, then ready ones from the shortest ready on.
	order := []int{}
	for n := 7; n >= 0; n-- {
		for _, e := range d.Scale(at(100), n) {
			if e.To == Terminating || e.To == Gone {
				order = append(order, e.ID)
			}
		}
	}
	assert.Equal(t, []int{7, 6, 5, 4, 1, 3, 2, 0}, order)
	assert.Equal(t, Counts{Terminating: 6, GPUs: 6}, d.Counts())
}

// TestMoreRestartsGoFirst among replicas that are equally unready.
func TestMoreRestartsGoFirst(t *testing.T) {
	d := newDeployment(t, Config{Replicas: 3})
	for _, id := range []int{0, 0, 1, 2} {
		d.Crash(0, id, simtime.Never)
	}
	assert.Equal(t, []string{"1s #0 crashed>terminating"}, lines(d.Scale(second, 2)))
	assert.Equal(t, []string{"2s #2 crashed>terminating"}, lines(d.Scale(2*second, 1)))
}

// TestRolloutGivesUpBrokenOnes: one of four is down, one may be: it is the one
// to go, as taking a ready one would leave too few.
func TestRolloutGivesUpBrokenOnes(t *testing.T) {
	d := newDeployment(t, Config{Replicas: 4, Stages: thirty, MaxSurge: "0", MaxUnavailable: "1"})
	d.Crash(0, 2, simtime.Never)
	assert.Equal(t, []string{"1s #2 crashed>terminating", "1s #4 none>pending", "1s #4 pending>scheduling"}, lines(d.Rollout(second)))
	assert.Equal(t, 3, d.Counts().Ready)
}

// TestLogarithmicOrder: ages of 3 and 3.9 s share a binary logarithm (2^31 ns to
// 2^32 ns), so the random UID decides, not the age; 100 s and 3 s do not.
func TestLogarithmicOrder(t *testing.T) {
	olderFirst := 0
	for seed := range uint64(200) {
		d, err := New(Config{ScaleDown: Logarithmic}, random.Stream(seed, "lifecycle"))
		require.NoError(t, err)
		d.Scale(0, 1)
		d.Scale(96_100*simtime.Millisecond, 2)
		d.Scale(97*second, 3)
		events := d.Scale(100*second, 2)
		require.Len(t, events, 1)
		require.NotEqual(t, 0, events[0].ID, "the oldest by far stays")
		if events[0].ID == 1 {
			olderFirst++
		}
	}
	assert.InDelta(t, 100, olderFirst, 30)
}

func TestDeleteBeforeTheNode(t *testing.T) {
	d := newDeployment(t, Config{GPUs: 1, Stages: thirty})
	d.Scale(0, 2)
	assert.Equal(t, []string{"0.5s #1 pending>gone"}, lines(d.Scale(second/2, 1)))
	assert.Equal(t, []string{"0.75s #0 scheduling>gone", "0.75s #2 none>pending", "0.75s #2 pending>scheduling"}, lines(d.Delete(3*second/4, 0, true)))
	// In image-pull it is on a node: terminating.
	assert.Equal(t, []string{"1.75s #2 scheduling>image-pull", "1.8s #2 image-pull>terminating"}, lines(d.Delete(9*second/5, 2, false)))
	assert.Equal(t, Counts{Terminating: 1, GPUs: 1}, d.Counts())
}

func TestFaults(t *testing.T) {
	d := newDeployment(t, Config{Replicas: 3, GPUs: 3, Stages: thirty})
	assert.Equal(t, []string{"5s #0 ready>crashed"}, lines(d.Crash(5*second, 0, 20*second)))
	assert.Equal(t, Counts{Desired: 3, Created: 3, Ready: 2, Crashed: 1, GPUs: 3}, d.Counts())
	assert.Equal(t, []string{"20s #0 crashed>ready"}, lines(d.Advance(25*second)))
	r, _ := d.Replica(0)
	assert.Equal(t, 1, r.Restarts)
	assert.Equal(t, 20*second, r.Since)

	// Node loss: gone with its GPU, so the replacement waits.
	assert.Equal(t, []string{"30s #1 ready>gone", "30s #3 none>pending"}, lines(d.Lose(30*second, 1, true)))
	assert.Equal(t, Counts{Desired: 3, Created: 3, Pending: 1, Ready: 2, GPUs: 2}, d.Counts())
	assert.Equal(t, []string{"40s #3 pending>scheduling"}, lines(d.AddGPUs(40*second, 1)))

	// Without replacement one fewer is desired.
	assert.Equal(t, []string{"45s #2 ready>gone"}, lines(d.Lose(45*second, 2, false)[2:]))
	assert.Equal(t, 2, d.Counts().Desired)

	// For good: it stays crashed, and holds its GPU.
	d.Crash(50*second, 0, simtime.Never)
	d.Advance(5000 * second)
	assert.Equal(t, Counts{Desired: 2, Created: 2, Ready: 1, Crashed: 1, GPUs: 2}, d.Counts())

	// What makes no sense changes nothing.
	for _, events := range [][]Event{
		d.Delete(5000*second, 99, true), d.Finish(5000*second, 0), d.Lose(5000*second, 1, true), d.Crash(5000*second, 1, simtime.Never),
		d.AddGPUs(5000*second, -1), d.Scale(5000*second, 2),
	} {
		assert.Empty(t, events)
	}
	assert.Empty(t, d.Scale(5000*second, -3)[2:], "below 0 is 0")
}

// TestLateCallsKeepTimes: a call long after carries out what was due, each at its
// own time, and what followed from it.
func TestLateCallsKeepTimes(t *testing.T) {
	d := newDeployment(t, Config{Replicas: 1, GPUs: 2, Stages: thirty, MaxSurge: "1", MaxUnavailable: "0"})
	d.Rollout(0)
	assert.Equal(t, []string{
		"1s #1 scheduling>image-pull",
		"3s #1 image-pull>model-load",
		"23s #1 model-load>compile",
		"28s #1 compile>readiness",
		"30s #1 readiness>ready",
		"30s #0 ready>terminating",
	}, lines(d.Advance(500*second)))
}

// TestRollout follows ready replicas through a rolling update: 4 replicas take
// 30 s each to be ready, and 10 s to terminate.
func TestRollout(t *testing.T) {
	tests := []struct {
		name               string
		gpus               int
		surge, unavailable string
		want               string
	}{
		// 25% of 4 is 1 each way: at once one more new and one fewer old, and the
		// new one for that: two new start, 3 old serve. At 30 two are ready and the
		// minimum of 3 lets two old ones go, for which two new start. At 60 all
		// four are ready, and the last old one goes.
		{"25%", 0, "", "", "0s 4/5/2/3/1 30s 4/5/2/3/2 60s 4/4/0/4/1"},
		// None may lack: one by one.
		{"surge 1", 0, "1", "0", "0s 4/5/1/4/0 30s 4/5/1/4/1 60s 4/5/1/4/1 90s 4/5/1/4/1 120s 4/4/0/4/1"},
		// No surge: the new one waits for the old one's GPU on a full cluster,
		// 10 s each.
		{"full cluster, unavailable 1", 4, "0", "1", "0s 4/4/0/3/1 40s 4/4/0/3/1 80s 4/4/0/3/1 120s 4/4/0/3/1 160s 4/4/0/4/0"},
		// A surge needs a GPU that is not there: it never gets anywhere.
		{"full cluster, surge 1", 4, "1", "0", "0s 4/5/0/4/0"},
		// Both 0 would stand still: Kubernetes takes 1 unavailable.
		{"neither", 5, "0", "0", "0s 4/4/1/3/1 30s 4/4/1/3/1 60s 4/4/1/3/1 90s 4/4/1/3/1 120s 4/4/0/4/0"},
		{"all at once", 0, "100%", "100%", "0s 4/4/4/0/4 30s 4/4/0/4/0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := newDeployment(t, Config{Replicas: 4, GPUs: tt.gpus, Stages: thirty, MaxSurge: tt.surge, MaxUnavailable: tt.unavailable})
			// The state is written down at the start and whenever a replica gets ready.
			states := []string{}
			note := func(now simtime.Time) {
				c := d.Counts()
				states = append(states, fmt.Sprintf("%v %d/%d/%d/%d/%d", now, c.Desired, c.Created, c.Starting, c.Ready, c.Terminating))
			}
			run(t, d, 400*second, 10*second, func(now simtime.Time, events []Event) {
				for _, e := range events {
					if e.To == Ready {
						note(now)
						return
					}
				}
			}, func() []Event {
				events := d.Rollout(0)
				note(0)
				return events
			})
			assert.Equal(t, tt.want, strings.Join(states, " "))
			if tt.want[len(tt.want)-9:] == "4/4/0/4/0" {
				for _, r := range d.Replicas() {
					assert.Equal(t, 2, r.Revision)
				}
			}
		})
	}
}

// run is a loop: it starts with an action, ends terminating replicas after a
// grace, and follows Next until the end.
func run(t testing.TB, d *Deployment, end, grace simtime.Time, see func(simtime.Time, []Event), start func() []Event) {
	t.Helper()
	type finish struct {
		at simtime.Time
		id int
	}
	var ends []finish
	note := func(events []Event) {
		for _, e := range events {
			if e.To == Terminating {
				ends = append(ends, finish{e.At + grace, e.ID})
			}
		}
	}
	note(start())
	for range 10_000 {
		at, _ := d.Next()
		if len(ends) > 0 && ends[0].at <= at {
			f := ends[0]
			ends = ends[1:]
			if f.at > end {
				return
			}
			events := d.Finish(f.at, f.id)
			note(events)
			see(f.at, events)
			continue
		}
		if at > end {
			return
		}
		events := d.Advance(at)
		note(events)
		see(at, events)
	}
	t.Fatal("no end")
}

// TestRolloutInRollout: a third revision replaces both.
func TestRolloutInRollout(t *testing.T) {
	d := newDeployment(t, Config{Replicas: 3, Stages: thirty, MaxSurge: "1", MaxUnavailable: "1"})
	run(t, d, 1000*second, 5*second, func(simtime.Time, []Event) {
		assert.GreaterOrEqual(t, d.Counts().Ready, 2)
		assert.LessOrEqual(t, d.Counts().Created, 4)
	}, func() []Event {
		return append(d.Rollout(0), d.Rollout(10*second)...)
	})
	require.Len(t, d.Replicas(), 3)
	for _, r := range d.Replicas() {
		assert.Equal(t, 3, r.Revision)
		assert.Equal(t, Ready, r.Stage)
	}
}

func TestAmount(t *testing.T) {
	tests := []struct {
		surge, unavailable string
		desired            int
		up, down           int
	}{
		{"25%", "25%", 4, 1, 1},
		{"25%", "25%", 3, 1, 0},
		{"25%", "25%", 5, 2, 1},
		{"25%", "25%", 0, 0, 1},
		{"0", "25%", 3, 0, 1}, // floor(0.75) = 0 and no surge: 1
		{"0%", "0", 9, 0, 1},
		{"3", "0", 1, 3, 0},
		{"100%", "50%", 7, 7, 3},
	}
	for _, tt := range tests {
		surge, err := ParseAmount(tt.surge)
		require.NoError(t, err)
		unavailable, err := ParseAmount(tt.unavailable)
		require.NoError(t, err)
		up, down := rollingLimits(surge, unavailable, tt.desired)
		assert.Equal(t, []int{tt.up, tt.down}, []int{up, down}, "%+v", tt)
	}
	for _, bad := range []string{"", "%", "-1", "1.5", "25 %", "1001%", "1000001", "99999999999999999999", "+1"} {
		_, err := ParseAmount(bad)
		assert.ErrorContains(t, err, fmt.Sprintf("%q: must be", bad))
	}
}

func FuzzParseAmount(f *testing.F) {
	for _, s := range []string{"25%", "0", "1000%", "", "1000000", "%%"} {
		f.Add(s, 4)
	}
	f.Fuzz(func(t *testing.T, s string, desired int) {
		a, err := ParseAmount(s)
		if err != nil {
			return
		}
		desired &= math.MaxInt32
		if up, down := a.roundUp(desired), a.roundDown(desired); down < 0 || up < down || up > down+1 {
			t.Errorf("%q of %d: %d, %d", s, desired, up, down)
		}
	})
}

func TestNewReportsEveryProblem(t *testing.T) {
	bad := thirty
	bad.Schedule = constant(-1)
	bad.Compile.Distribution = "gauss"
	bad.Readiness = scenario.Span{Mean: constant(1).Mean, SD: constant(1).Mean, Distribution: "uniform"}
	_, err := New(Config{Replicas: 3, GPUs: 2, Stages: bad, MaxSurge: "a", MaxUnavailable: "b%"}, nil)
	require.Error(t, err)
	for _, want := range []string{
		"replicas 3: must be at least 0 and at most the GPUs, 2",
		"lifecycle.schedule: mean -1s: must be 0s to",
		`lifecycle.compile: distribution "gauss": unknown; allowed are constant,`,
		"lifecycle.readiness: sd 1s: a uniform span",
		`max_surge "a": must be`,
		`max_unavailable "b%": must be`,
	} {
		assert.ErrorContains(t, err, want)
	}
	_, err = New(Config{GPUs: -1}, nil)
	assert.ErrorContains(t, err, "gpus -1: must be at least 0")
}

func TestDraw(t *testing.T) {
	tests := []struct {
		distribution string
		sd           float64 // expected; given as 5 s
	}{
		{"", 0}, {"constant", 0}, {"uniform", 5}, {"normal", 5}, {"lognormal", 5}, {"exponential", 20},
	}
	for _, tt := range tests {
		span := scenario.Span{Mean: constant(20).Mean, SD: constant(5).Mean, Distribution: tt.distribution}
		require.NoError(t, CheckSpan(span))
		rng := random.Stream(7, "draw")
		const n = 40_000
		sum, squares := 0.0, 0.0
		for range n {
			draw := Draw(span, rng)
			require.GreaterOrEqual(t, draw, simtime.Time(0))
			require.Zero(t, draw%simtime.Microsecond)
			sum += draw.Seconds()
			squares += draw.Seconds() * draw.Seconds()
		}
		mean := sum / n
		assert.InDelta(t, 20, mean, 0.01+4*tt.sd/math.Sqrt(n), tt.distribution)
		assert.InDelta(t, tt.sd, math.Sqrt(max(squares/n-mean*mean, 0)), 0.03*tt.sd+1e-6, tt.distribution)
	}
	wild := scenario.Span{Mean: scenario.Duration{Time: second}, SD: scenario.Duration{Time: longestStage}}
	rng := random.Stream(7, "draw")
	for _, distribution := range []string{"normal", "lognormal"} {
		wild.Distribution = distribution
		for range 1000 {
			draw := Draw(wild, rng)
			require.True(t, draw >= 0 && draw <= longestDraw)
		}
	}
	assert.Zero(t, Draw(scenario.Span{Distribution: "lognormal"}, rng))
}

// TestDurationsBelongToTheReplica: the k-th replica takes equally long whenever
// it is created.
func TestDurationsBelongToTheReplica(t *testing.T) {
	stages := thirty
	stages.ModelLoad = scenario.Span{Mean: constant(20).Mean, SD: constant(5).Mean, Distribution: "lognormal"}
	took := func(times ...int) []simtime.Time {
		d := newDeployment(t, Config{Stages: stages})
		for n, s := range times {
			d.Scale(simtime.Time(s)*second, n+1)
		}
		d.Advance(10_000 * second)
		out := []simtime.Time{}
		for _, r := range d.Replicas() {
			out = append(out, r.Since-r.Created)
		}
		return out
	}
	together := took(0, 0, 0)
	assert.Equal(t, together, took(0, 100, 999))
	assert.NotEqual(t, together[0], together[1])
}

func TestMetricState(t *testing.T) {
	want := map[Stage]autoscale.State{
		Pending: autoscale.NoAddress, Scheduling: autoscale.NoAddress, ImagePull: autoscale.NoAddress,
		ModelLoad: autoscale.Silent, Compile: autoscale.Silent, Crashed: autoscale.Silent,
		Readiness: autoscale.Reported, Ready: autoscale.Reported, Terminating: autoscale.Reported,
	}
	for stage, state := range want {
		assert.Equal(t, state, stage.MetricState(), "%v", stage)
	}
}

// TestConservation drives a deployment at random and checks after each call that
// GPUs are conserved, counts agree with the replicas, nobody waits while a GPU
// is free, events are a consistent history, and that as many are active as desired
// outside of a rollout.
func TestConservation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gpus := rapid.IntRange(0, 6).Draw(t, "gpus")
		limited := gpus > 0
		replicas := 3
		if limited {
			replicas = rapid.IntRange(0, gpus).Draw(t, "replicas")
		}
		stages := scenario.Lifecycle{
			Schedule: constant(rapid.IntRange(0, 1).Draw(t, "schedule")),
			ModelLoad: scenario.Span{
				Mean: constant(10).Mean, SD: constant(4).Mean,
				Distribution: rapid.SampledFrom([]string{"constant", "uniform", "normal", "lognormal", "exponential"}).Draw(t, "distribution"),
			},
		}
		d, err := New(Config{
			Replicas: replicas, GPUs: gpus, Stages: stages,
			ScaleDown:      rapid.SampledFrom([]Order{YoungestFirst, Logarithmic}).Draw(t, "order"),
			MaxSurge:       rapid.SampledFrom([]string{"", "0", "2", "50%"}).Draw(t, "surge"),
			MaxUnavailable: rapid.SampledFrom([]string{"", "0", "1"}).Draw(t, "unavailable"),
		}, rand.New(rand.NewPCG(1, rapid.Uint64().Draw(t, "seed"))))
		require.NoError(t, err)

		stage := map[int]Stage{}
		for _, r := range d.Replicas() {
			stage[r.ID] = r.Stage
		}
		now, last := simtime.Time(0), simtime.Time(0)
		rolledOut := false
		for range rapid.IntRange(1, 80).Draw(t, "calls") {
			now += simtime.Time(rapid.IntRange(0, 8).Draw(t, "wait")) * second
			id := -1
			if all := d.Replicas(); len(all) > 0 {
				id = rapid.SampledFrom(all).Draw(t, "replica").ID
			}
			replace := rapid.Bool().Draw(t, "replace")
			events := d.Advance(now)
			switch rapid.IntRange(0, 9).Draw(t, "call") {
			case 0, 1, 2:
				events = append(events, d.Scale(now, rapid.IntRange(0, 9).Draw(t, "desired"))...)
			case 3:
				events = append(events, d.Delete(now, id, replace)...)
			case 4, 5, 6:
				for _, r := range d.Replicas() {
					events = append(events, d.Finish(now, r.ID)...)
				}
			case 7:
				if r, ok := d.Replica(id); ok && r.Stage.holdsGPU() && gpus != 1 {
					gpus = max(gpus-1, 0)
					events = append(events, d.Lose(now, id, replace)...)
				}
			case 8:
				events = append(events, d.Crash(now, id, now+simtime.Time(rapid.IntRange(-5, 20).Draw(t, "down"))*second)...)
			case 9:
				events = append(events, d.Rollout(now)...)
				rolledOut = true
			}
			for _, e := range events {
				if e.From != stage[e.ID] || e.At < last || e.At > now {
					t.Fatalf("event %+v: replica was %v, last event at %v, now %v", e, stage[e.ID], last, now)
				}
				stage[e.ID], last = e.To, e.At
			}

			held, active, pending := 0, 0, 0
			for _, r := range d.Replicas() {
				if r.Stage != stage[r.ID] {
					t.Fatalf("replica %d is %v, by the events %v", r.ID, r.Stage, stage[r.ID])
				}
				if r.Stage.holdsGPU() {
					held++
				}
				if r.Stage.active() {
					active++
				}
				if r.Stage == Pending {
					pending++
				}
			}
			c := d.Counts()
			switch {
			case c.GPUs != held || limited && held > gpus:
				t.Fatalf("%d GPUs held, counted %d, there are %d", held, c.GPUs, gpus)
			case pending > 0 && (!limited || held < gpus):
				t.Fatalf("%d pending though a GPU is free", pending)
			case c.Created != active || c.Pending != pending:
				t.Fatalf("counts %+v: active %d, pending %d", c, active, pending)
			case !rolledOut && active != c.Desired:
				t.Fatalf("%d active, %d desired", active, c.Desired)
			}
			if at, _ := d.Next(); at <= now {
				t.Fatalf("left undone: due at %v, now %v", at, now)
			}
		}

		// Left alone with a GPU for each, all desired are ready in the end.
		for _, r := range d.Replicas() {
			if r.Stage == Crashed {
				d.Delete(now, r.ID, true)
			}
		}
		d.AddGPUs(now, 100)
		for range 200 {
			now += 1000 * second
			d.Advance(now)
			for _, r := range d.Replicas() {
				d.Finish(now, r.ID)
			}
		}
		if c := d.Counts(); c.Ready != c.Desired || c.Created != c.Desired || c.Terminating != 0 {
			t.Fatalf("not settled: %+v", c)
		}
	})
}
