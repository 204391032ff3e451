package scenario

import (
	"slices"

	"fleetsim/strict"
)

// idle refuses settings that count only with another, a switch, where no switch
// is written down: they would be passed over in silence. A switch that is there
// and says off is meant, as when an override or a sweep switches off what a file
// sets in full.
func (c *checker) idle(sc *Scenario) {
	limits := []strict.Path{"admission.quota", "admission.rate_per_second"}
	for i := range sc.Workload.Tenants {
		limits = append(limits, strict.Path("workload.tenants").Index(i).Key("quota"))
	}
	for _, s := range []struct {
		table    strict.Path
		keys     []string
		switches []strict.Path
		names    string // of the switches
	}{
		{"workload.retry", []string{"back_off", "max_back_off", "jitter", "budget"},
			[]strict.Path{"workload.retry.max_attempts"}, "workload.retry.max_attempts"},
		{"workload.cancel", []string{"after"},
			[]strict.Path{"workload.cancel.fraction"}, "workload.cancel.fraction"},
		{"start", []string{"owners.0"},
			[]strict.Path{"start.engine_cache", "start.router_index"}, "start.engine_cache or start.router_index"},
		{"admission", []string{"proxies", "queue_length", "reject_latency"},
			limits, "admission.quota, a tenant's quota or admission.rate_per_second"},
		{"admission", []string{"queue_timeout"},
			[]strict.Path{"admission.queue_length"}, "admission.queue_length"},
		{"admission", []string{"burst"},
			[]strict.Path{"admission.rate_per_second"}, "admission.rate_per_second"},
		{"autoscale", []string{"min_replicas", "max_replicas", "metric", "target", "interval", "metric_delay", "scrape_interval", "annotations", "pre_scale"},
			[]strict.Path{"autoscale.strategy"}, "autoscale.strategy"},
		{"rollout", []string{"max_surge", "max_unavailable"},
			[]strict.Path{"rollout.at"}, "rollout.at"},
	} {
		if slices.ContainsFunc(s.switches, c.doc.Has) {
			continue
		}
		for _, key := range s.keys {
			if p := s.table + "." + strict.Path(key); c.doc.Has(p) && c.sound(p) {
				c.bad(p, "%s does nothing without %s; allowed: with it, or not at all", p, s.names)
			}
		}
	}
}
