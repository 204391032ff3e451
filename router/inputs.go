package router

// What a policy reads costs the caller work to provide; a policy that does
// without says so here.

// A MetricsReader is a policy that says whether it reads Pod.Metrics. One that
// does not say is taken to read them.
type MetricsReader interface {
	ReadsMetrics() bool
}

// ReadsMetrics reports whether the policy may read the pods' Metrics, so that
// SetMetrics has an effect.
func (g *Gateway) ReadsMetrics() bool { return readsMetrics(g.policy) }

func readsMetrics(p Policy) bool {
	r, ok := p.(MetricsReader)
	return !ok || r.ReadsMetrics()
}

// HearsKVEvents reports whether engines' events have an effect on the policy.
func (g *Gateway) HearsKVEvents() bool { return hearsKVEvents(g.policy) }

func hearsKVEvents(p Policy) bool {
	s, ok := p.(KVEventSink)
	return ok && s.HearsKVEvents()
}
