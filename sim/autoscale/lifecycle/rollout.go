package lifecycle

import "slices"

func (d *Deployment) current() *revision { return &d.revisions[len(d.revisions)-1] }

// roll takes one step of the deployment controller: it resizes revisions and
// reports whether it did. It follows rolling.go of Kubernetes'
// pkg/controller/deployment with minReadySeconds 0, where a ready replica is an
// available one: first the current revision grows as far as the surge allows,
// else the older ones shrink as far as availability allows.
func (d *Deployment) roll() bool {
	d.dropFinishedRevisions()
	if len(d.revisions) == 1 {
		return d.resize(d.current(), d.desired)
	}
	surge, unavailable := rollingLimits(d.surge, d.unavailable, d.desired)
	return d.growCurrent(surge) || d.shrinkOlder(unavailable)
}

func (d *Deployment) resize(rev *revision, size int) bool {
	changed := rev.size != size
	rev.size = size
	return changed
}

func (d *Deployment) growCurrent(surge int) bool {
	current := d.current()
	if current.size >= d.desired {
		return d.resize(current, d.desired)
	}
	room := d.desired + surge - d.totalSize()
	if room <= 0 {
		return false
	}
	return d.resize(current, current.size+min(room, d.desired-current.size))
}

// shrinkOlder first gives up replicas that are not ready, since those cost no
// availability, then ready ones beyond the minimum; the oldest revision first.
func (d *Deployment) shrinkOlder(unavailable int) bool {
	older := d.revisions[:len(d.revisions)-1]
	minimum := d.desired - unavailable
	spare := d.totalSize() - minimum - (d.current().size - d.ready(d.current().number))
	changed := false
	for i := range older {
		broken := min(older[i].size-d.ready(older[i].number), spare)
		if broken > 0 {
			older[i].size -= broken
			spare -= broken
			changed = true
		}
	}

	beyond := d.ready(d.current().number) - minimum
	for _, rev := range older {
		beyond += d.ready(rev.number)
	}
	for i := range older {
		if n := min(older[i].size, beyond); n > 0 {
			older[i].size -= n
			beyond -= n
			changed = true
		}
	}
	return changed
}

func (d *Deployment) totalSize() int {
	n := 0
	for _, rev := range d.revisions {
		n += rev.size
	}
	return n
}

// ready counts the ready replicas of a revision.
func (d *Deployment) ready(number int) int {
	n := 0
	for i := range d.replicas {
		if r := &d.replicas[i]; r.Revision == number && r.Stage == Ready {
			n++
		}
	}
	return n
}

// dropFinishedRevisions forgets older revisions of size 0; what is left of their
// replicas is terminating.
func (d *Deployment) dropFinishedRevisions() {
	current := *d.current()
	d.revisions = slices.DeleteFunc(d.revisions[:len(d.revisions)-1], func(r revision) bool { return r.size == 0 })
	d.revisions = append(d.revisions, current)
}
