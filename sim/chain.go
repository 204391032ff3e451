package sim

import "slices"

// goOn prepares the cluster, as the phase before has left it, for the phase of
// another setup. Engines, their caches, the deployment, the gateway with its
// index and the clock stay, and what is under way in the cluster goes on:
// replicas that start or drain, and slowness. The setup's cluster, engine,
// lifecycle, drain and start settings and its profile's engine do not count.
// Autoscaler and admission proxies are new.
//
// Families have the same contents as before; questions, unique prompts and
// answers differ.
func (r *run) goOn(s Setup) error {
	serial := r.client.serial + r.client.planned
	r.Setup = r.withCluster(s)
	if err := r.gateways.use(r.Setup); err != nil {
		return err
	}
	r.dropEvents()
	return r.begins(serial)
}

// withCluster is the setup with the settings of the cluster that there is.
func (r *run) withCluster(s Setup) Setup {
	sc := *s.Scenario
	sc.Cluster, sc.Engine, sc.Lifecycle, sc.Drain = r.Scenario.Cluster, r.Scenario.Engine, r.Scenario.Lifecycle, r.Scenario.Drain
	s.Scenario, s.Profile, s.Stepwise = &sc, r.Profile, r.Stepwise
	return s
}

// dropEvents takes everything out of the queue that belongs to the phase which
// is over.
func (r *run) dropEvents() {
	old := slices.Clone(r.queue)
	r.queue = r.queue[:0]
	for _, e := range old {
		if e.kind().ofCluster() {
			r.queue.push(e)
		}
	}
}
