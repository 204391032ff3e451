package lifecycle

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"

	"fleetsim/sim/scenario"
	"fleetsim/simtime"
)

// An Order says which of several ready replicas a scale-down takes first.
type Order uint8

const (
	// YoungestFirst takes the replica that has been ready the shortest.
	YoungestFirst Order = iota
	// Logarithmic compares the binary logarithms of the ready times and picks
	// among equal ones by the pod's random UID, as Kubernetes has done since
	// 1.22 (LogarithmicScaleDown).
	Logarithmic
)

// Config describes a deployment.
type Config struct {
	// Replicas are ready at time 0; at least 0, and no more than GPUs.
	Replicas int
	// GPUs in the cluster, one a replica; 0: no limit.
	GPUs int
	// Stages are the durations of a new replica's stages.
	Stages scenario.Lifecycle
	// ScaleDown picks among ready replicas.
	ScaleDown Order
	// MaxSurge and MaxUnavailable bound a rolling update; "" means "25%".
	MaxSurge, MaxUnavailable string
}

// A Replica is one replica as the control plane sees it.
type Replica struct {
	// ID counts up from 0 in order of creation and is never reused.
	ID       int
	Revision int // of the pod template; see Rollout
	Stage    Stage
	Since    simtime.Time // when it entered Stage
	Created  simtime.Time
	Restarts int

	due       simtime.Time // when it leaves Stage by itself
	durations [Ready - Scheduling]simtime.Time
	uid       uint64
}

// An Event is a replica's change of stage.
type Event struct {
	At       simtime.Time
	ID       int
	From, To Stage
}

// Counts are the numbers of replicas, apart as a timeline needs them: Created is
// Pending + Starting + Ready + Crashed; Terminating ones are not in it.
type Counts struct {
	Desired, Created, Pending, Starting, Ready, Crashed, Terminating int
	GPUs                                                             int // held
}

// A Deployment keeps as many replicas as are desired. The zero value is not
// usable. Times handed in must not go back. Each method first carries out, each
// at its own time, what was due by now, and returns the changes of stage in the
// order they happened.
type Deployment struct {
	desired     int
	gpus        int // in the cluster
	unlimited   bool
	stages      [Ready - Scheduling]scenario.Span
	order       Order
	surge       Amount
	unavailable Amount
	rng         *rand.Rand
	replicas    []Replica  // those not gone, by ID
	revisions   []revision // by age, the current one last
	created     int
	gpusHeld    int
	events      []Event
}

// A revision is a ReplicaSet: the replicas it should have.
type revision struct{ number, size int }

// New returns a deployment with its first replicas ready, or every problem of
// the configuration. The stages' lengths are drawn from rng, which the
// deployment keeps.
func New(cfg Config, rng *rand.Rand) (*Deployment, error) {
	d := &Deployment{
		desired:   cfg.Replicas,
		gpus:      cfg.GPUs,
		unlimited: cfg.GPUs == 0,
		order:     cfg.ScaleDown,
		rng:       rng,
		revisions: []revision{{number: 1, size: cfg.Replicas}},
	}
	var problems []error
	if cfg.GPUs < 0 {
		problems = append(problems, fmt.Errorf("gpus %d: must be at least 0", cfg.GPUs))
	}
	if cfg.Replicas < 0 || cfg.GPUs > 0 && cfg.Replicas > cfg.GPUs {
		problems = append(problems, fmt.Errorf("replicas %d: must be at least 0 and at most the GPUs, %d", cfg.Replicas, cfg.GPUs))
	}
	l := cfg.Stages
	d.stages = [...]scenario.Span{l.Schedule, l.ImagePull, l.ModelLoad, l.Compile, l.Readiness}
	for i, name := range [...]string{"schedule", "image_pull", "model_load", "compile", "readiness"} {
		if err := CheckSpan(d.stages[i]); err != nil {
			problems = append(problems, fmt.Errorf("lifecycle.%s: %w", name, err))
		}
	}
	var err error
	if d.surge, err = ParseAmount(cmp.Or(cfg.MaxSurge, "25%")); err != nil {
		problems = append(problems, fmt.Errorf("max_surge %w", err))
	}
	if d.unavailable, err = ParseAmount(cmp.Or(cfg.MaxUnavailable, "25%")); err != nil {
		problems = append(problems, fmt.Errorf("max_unavailable %w", err))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	for range cfg.Replicas {
		d.startReady()
	}
	return d, nil
}

// Scale sets the replicas desired, at least 0.
func (d *Deployment) Scale(now simtime.Time, desired int) []Event {
	return d.do(now, func() { d.desired = max(desired, 0) })
}

// Rollout replaces all replicas by ones of a new revision, within the bounds of
// the rolling update. A change of Scale on the way is carried out by the same
// bounds; Kubernetes would first share it out over the revisions in proportion.
func (d *Deployment) Rollout(now simtime.Time) []Event {
	return d.do(now, func() {
		d.revisions = append(d.revisions, revision{number: d.current().number + 1})
	})
}

// Delete deletes a replica; its drain is the caller's, who ends it with Finish.
// One that is not on a node yet is gone at once. With replace the deployment
// makes up for it straight away, as Kubernetes does; without, one replica fewer
// is desired. An unknown or terminating replica is left alone.
func (d *Deployment) Delete(now simtime.Time, id int, replace bool) []Event {
	return d.do(now, func() {
		if r := d.active(id); r != nil {
			d.withdraw(r, replace)
			d.terminate(now, r)
		}
	})
}

// Lose takes a replica away together with its node, so its GPU is lost too until
// AddGPUs. It is gone at once; replace is as for Delete.
func (d *Deployment) Lose(now simtime.Time, id int, replace bool) []Event {
	return d.do(now, func() {
		r := d.find(id)
		if r == nil || !r.Stage.holdsGPU() {
			return
		}
		if r.Stage.active() {
			d.withdraw(r, replace)
		}
		d.enter(now, r, Gone)
		d.gpus--
	})
}

// AddGPUs gives the cluster n more GPUs; without a limit it changes nothing.
func (d *Deployment) AddGPUs(now simtime.Time, n int) []Event {
	return d.do(now, func() { d.gpus += max(n, 0) })
}

// Crash takes a replica's container down until the given time, simtime.Never
// for good; then it is Ready again. It stays in place and keeps its GPU. A
// replica without a running container, or terminating, is left alone.
func (d *Deployment) Crash(now simtime.Time, id int, until simtime.Time) []Event {
	return d.do(now, func() {
		r := d.active(id)
		if r == nil || r.Stage < ModelLoad {
			return
		}
		r.Restarts++
		d.enter(now, r, Crashed)
		r.due = max(until, now)
	})
}

// Finish ends a terminating replica and frees its GPU; any other is left alone.
func (d *Deployment) Finish(now simtime.Time, id int) []Event {
	return d.do(now, func() {
		if r := d.find(id); r != nil && r.Stage == Terminating {
			d.enter(now, r, Gone)
		}
	})
}

// Advance carries out what is due by now.
func (d *Deployment) Advance(now simtime.Time) []Event {
	return d.do(now, func() {})
}

// Next is the time of the next change that happens by itself and the replica it
// happens to, the lowest of several; simtime.Never and -1 when there is none.
func (d *Deployment) Next() (at simtime.Time, id int) {
	at, id = simtime.Never, -1
	for i := range d.replicas {
		if r := &d.replicas[i]; r.due < at {
			at, id = r.due, r.ID
		}
	}
	return at, id
}

// Counts are the numbers after the last call.
func (d *Deployment) Counts() Counts {
	c := Counts{Desired: d.desired, GPUs: d.gpusHeld}
	for i := range d.replicas {
		switch s := d.replicas[i].Stage; {
		case s == Pending:
			c.Pending++
		case s.starting():
			c.Starting++
		case s == Ready:
			c.Ready++
		case s == Crashed:
			c.Crashed++
		case s == Terminating:
			c.Terminating++
		}
	}
	c.Created = c.Pending + c.Starting + c.Ready + c.Crashed
	return c
}

// Replicas returns a copy of the replicas that are not gone, by ID.
func (d *Deployment) Replicas() []Replica { return slices.Clone(d.replicas) }

// Replica returns the replica with the ID, and whether it is there and not gone.
func (d *Deployment) Replica(id int) (Replica, bool) {
	if r := d.find(id); r != nil {
		return *r, true
	}
	return Replica{}, false
}

// do brings the deployment to now, applies a change and lets it take effect.
func (d *Deployment) do(now simtime.Time, change func()) []Event {
	d.events = nil
	d.settle(now)
	change()
	d.reconcile(now)
	d.settle(now)
	return d.events
}

// settle carries out the changes due by now in order of time, then of ID, and
// lets the controllers act after each.
func (d *Deployment) settle(now simtime.Time) {
	for {
		at, id := d.Next()
		if at > now {
			return
		}
		r := d.find(id)
		if r.Stage == Crashed {
			d.enter(at, r, Ready)
		} else {
			d.enter(at, r, r.Stage+1)
		}
		d.reconcile(at)
	}
}

// reconcile runs the controllers until they have nothing more to do: the
// deployment sizes its revisions, each revision creates or deletes replicas,
// and the scheduler gives free GPUs to the replicas longest pending.
func (d *Deployment) reconcile(now simtime.Time) {
	for {
		d.dropGone()
		changed := d.roll()
		for _, rev := range d.revisions {
			changed = d.syncRevision(now, rev) || changed
		}
		if !changed {
			break
		}
	}
	d.schedule(now)
}

// syncRevision makes a revision's replicas as many as its size.
func (d *Deployment) syncRevision(now simtime.Time, rev revision) bool {
	var mine []*Replica
	for i := range d.replicas {
		if r := &d.replicas[i]; r.Revision == rev.number && r.Stage.active() {
			mine = append(mine, r)
		}
	}
	surplus := len(mine) - rev.size
	if surplus > 0 {
		slices.SortFunc(mine, func(a, b *Replica) int { return d.deletionOrder(now, a, b) })
		for _, r := range mine[:surplus] {
			d.terminate(now, r)
		}
	}
	for range -surplus {
		d.create(now, rev.number)
	}
	return surplus != 0
}

// deletionOrder compares replicas as the ReplicaSet controller does
// (controller.ActivePodsWithRanks) without deletion costs and, as a GPU holds one
// replica, without ranks by node: by class of stage, then the ready time, then
// more restarts first, then younger first.
func (d *Deployment) deletionOrder(now simtime.Time, a, b *Replica) int {
	if c := cmp.Compare(a.Stage.deletionClass(), b.Stage.deletionClass()); c != 0 {
		return c
	}
	if a.Stage == Ready && a.Since != b.Since {
		return d.compareAges(now-a.Since, now-b.Since, a, b)
	}
	if c := cmp.Compare(b.Restarts, a.Restarts); c != 0 {
		return c
	}
	if a.Created != b.Created {
		return d.compareAges(now-a.Created, now-b.Created, a, b)
	}
	return cmp.Compare(b.ID, a.ID)
}

func (d *Deployment) compareAges(a, b simtime.Time, ra, rb *Replica) int {
	if d.order == YoungestFirst {
		return cmp.Compare(a, b)
	}
	return cmp.Or(cmp.Compare(logarithm(a), logarithm(b)), cmp.Compare(ra.uid, rb.uid))
}

// logarithm is the whole binary logarithm of an age in nanoseconds; -1 of none.
func logarithm(age simtime.Time) int {
	return bits.Len64(uint64(age/simtime.Nanosecond)) - 1
}

// schedule gives free GPUs to pending replicas in order of creation.
func (d *Deployment) schedule(now simtime.Time) {
	for i := range d.replicas {
		if r := &d.replicas[i]; r.Stage == Pending && (d.unlimited || d.gpusHeld < d.gpus) {
			d.enter(now, r, Scheduling)
		}
	}
}

// create adds a pending replica. All its chance is drawn here.
func (d *Deployment) create(now simtime.Time, revision int) {
	r := Replica{ID: d.created, Revision: revision, Created: now, uid: d.rng.Uint64(), due: simtime.Never}
	for i, span := range d.stages {
		r.durations[i] = Draw(span, d.rng)
	}
	d.created++
	d.replicas = append(d.replicas, r)
	d.enter(now, &d.replicas[len(d.replicas)-1], Pending)
}

// startReady adds a replica that has been ready since before time 0. It draws
// like any other.
func (d *Deployment) startReady() {
	d.create(0, d.current().number)
	r := &d.replicas[len(d.replicas)-1]
	r.Stage, r.due = Ready, simtime.Never
	d.gpusHeld++
	d.events = nil
}

// terminate begins a replica's end. One on no node has nothing to drain.
func (d *Deployment) terminate(now simtime.Time, r *Replica) {
	if r.Stage <= Scheduling {
		d.enter(now, r, Gone)
		return
	}
	d.enter(now, r, Terminating)
}

// withdraw takes an active replica out of what is desired unless it is to be
// replaced.
func (d *Deployment) withdraw(r *Replica, replace bool) {
	if replace || d.desired == 0 {
		return
	}
	d.desired--
	for i := range d.revisions {
		if rev := &d.revisions[i]; rev.number == r.Revision && rev.size > 0 {
			rev.size--
		}
	}
}

// enter moves a replica to a stage and keeps the count of GPUs.
func (d *Deployment) enter(now simtime.Time, r *Replica, to Stage) {
	d.events = append(d.events, Event{At: now, ID: r.ID, From: r.Stage, To: to})
	if held := r.Stage.holdsGPU(); held != to.holdsGPU() {
		if held {
			d.gpusHeld--
		} else {
			d.gpusHeld++
		}
	}
	r.Stage, r.Since, r.due = to, now, simtime.Never
	if to.starting() {
		r.due = now + r.durations[to-Scheduling]
	}
}

// find returns the replica with the ID, nil when there is none or it is gone.
// The pointer is good until the next creation.
func (d *Deployment) find(id int) *Replica {
	i, ok := slices.BinarySearchFunc(d.replicas, id, func(r Replica, id int) int { return r.ID - id })
	if !ok || d.replicas[i].Stage == Gone {
		return nil
	}
	return &d.replicas[i]
}

// active is find for a replica that its revision counts.
func (d *Deployment) active(id int) *Replica {
	if r := d.find(id); r != nil && r.Stage.active() {
		return r
	}
	return nil
}

func (d *Deployment) dropGone() {
	d.replicas = slices.DeleteFunc(d.replicas, func(r Replica) bool { return r.Stage == Gone })
}
