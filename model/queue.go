package model

// queue is the waiting queue: a ring that grows, with both ends open because
// preempted sequences come back to the front.
type queue struct {
	ring []*Seq
	head int
	n    int
}

func (q *queue) len() int { return q.n }

func (q *queue) at(i int) *Seq { return q.ring[(q.head+i)&(len(q.ring)-1)] }

func (q *queue) front() *Seq { return q.ring[q.head] }

func (q *queue) pushBack(s *Seq) {
	q.grow()
	q.ring[(q.head+q.n)&(len(q.ring)-1)] = s
	q.n++
}

func (q *queue) pushFront(s *Seq) {
	q.grow()
	q.head = (q.head - 1) & (len(q.ring) - 1)
	q.ring[q.head] = s
	q.n++
}

func (q *queue) popFront() *Seq {
	s := q.ring[q.head]
	q.ring[q.head] = nil
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.n--
	return s
}

// remove takes s out of the queue, keeping the order of the rest.
func (q *queue) remove(s *Seq) bool {
	for i := range q.n {
		if q.at(i) != s {
			continue
		}
		for ; i < q.n-1; i++ {
			q.ring[(q.head+i)&(len(q.ring)-1)] = q.at(i + 1)
		}
		q.n--
		q.ring[(q.head+q.n)&(len(q.ring)-1)] = nil
		return true
	}
	return false
}

func (q *queue) grow() {
	if q.n < len(q.ring) {
		return
	}
	ring := make([]*Seq, max(16, 2*len(q.ring)))
	for i := range q.n {
		ring[i] = q.at(i)
	}
	q.ring, q.head = ring, 0
}
