package scenario

import (
	"slices"
	"strings"

	"fleetsim/router"
	"fleetsim/sim/autoscale"
	"fleetsim/simtime"
	"fleetsim/strict"
)

// policies checks that the router can make every policy.
func (c *checker) policies(sc *Scenario) {
	if len(sc.Policies) == 0 {
		c.bad("policies", "policies must list at least one of %s", strings.Join(router.Names(), ", "))
	}
	settings, err := sc.Router.Settings()
	if err != nil {
		settings = router.DefaultSettings() // what is wrong is reported with the router
	}
	for i, name := range sc.Policies {
		p := strict.Path("policies").Index(i)
		policy, err := router.New(name, settings, router.Options{})
		c.errors(p, err)
		if _, disaggregates := policy.(router.PrefillTracker); disaggregates && sc.Cluster.PD == nil {
			c.bad(p, "policy %q needs pods with roles: [cluster.pd] with the number of those that prefill", name)
		}
		if slices.Contains(sc.Policies[:i], name) {
			c.bad(p, "policy %q is listed twice", name)
		}
	}
}

func (c *checker) router(r *Router) {
	c.count("router.gateways", r.Gateways, 1, maxReplicas)
	c.atLeast("router.metrics_interval", r.MetricsInterval, minPeriod)
	c.zeroOrAtLeast("router.prometheus_interval", r.PrometheusInterval, minPeriod)
	c.environment(r.Env)
	for i, name := range r.ExtraMetrics {
		c.oneOf(strict.Path("router.extra_metrics").Index(i), name, extraMetrics[:])
	}
	c.gpuProfiles(r.GPUProfiles)
	for i, name := range r.UpstreamFixed {
		c.oneOf(strict.Path("router.upstream_fixed").Index(i), name, fixes())
	}
}

// fixes are the names of upstream_fixed: the autoscaler's and the router's.
func fixes() []string {
	names := autoscale.Fixes()
	for _, f := range router.UpstreamFixes() {
		names = append(names, f.Name)
	}
	return names
}

// environment reports what is wrong with the gateway's settings, each at the
// variable that the message begins with.
func (c *checker) environment(env map[string]string) {
	const p = strict.Path("router.env")
	_, err := router.ParseSettings(env)
	for _, err := range split(err) {
		at, longest := p, 0
		for _, name := range sortedKeys(env) {
			if len(name) > longest && strings.HasPrefix(err.Error(), name) {
				at, longest = p.Key(name), len(name)
			}
		}
		c.error(at, err)
	}
}

// gpuProfiles checks each profile as the slo policies will.
func (c *checker) gpuProfiles(profiles []GPUProfile) {
	for i := range profiles {
		_, err := router.New("slo", router.DefaultSettings(), router.Options{Profiles: []router.GPUProfile{profiles[i].routers()}})
		c.errors(strict.Path("router.gpu_profiles").Index(i), err)
	}
}

// disaggregation checks that each role set has pods of both roles. What would
// bring about replicas of no certain role is not simulated with roles.
func (c *checker) disaggregation(sc *Scenario) {
	const p = strict.Path("cluster.pd")
	pd := sc.Cluster.PD
	if pd == nil {
		return
	}
	if c.sound("cluster.replicas") {
		c.count(p.Key("prefill"), pd.Prefill, 1, max(1, sc.Cluster.Replicas-1))
	}
	if c.sound("cluster.replicas", p.Key("prefill")) {
		c.count(p.Key("role_sets"), pd.RoleSets, 0, max(1, min(pd.Prefill, sc.Cluster.Replicas-pd.Prefill)))
	}
	if sc.Autoscale.Strategy != "" {
		c.bad(p, "%s and [autoscale] do not go together: it is not known which role a new replica would have", p)
	}
	if sc.Rollout.At.Time > 0 {
		c.bad(p, "%s and rollout.at do not go together: it is not known which role a new replica would have", p)
	}
}

// Settings are the gateway's: its environment block and the fixes that are the
// router's, since the scenario has one list for the router and the autoscaler.
func (r *Router) Settings() (router.Settings, error) {
	s, err := router.ParseSettings(r.Env)
	s.UpstreamFixed = make(map[string]bool)
	for _, f := range router.UpstreamFixes() {
		if slices.Contains(r.UpstreamFixed, f.Name) {
			s.UpstreamFixed[f.Name] = true
		}
	}
	return s, err
}

// Options are the inputs of policies beside the settings.
func (r *Router) Options() router.Options {
	var o router.Options
	for i := range r.GPUProfiles {
		o.Profiles = append(o.Profiles, r.GPUProfiles[i].routers())
	}
	return o
}

// routers is the profile in the router's terms.
func (p *GPUProfile) routers() router.GPUProfile {
	return router.GPUProfile{
		PodPrefix: p.Pods, OutputTokens: p.OutputTokens, InputTokens: p.InputTokens,
		Rate: p.Rate, E2E: p.E2E, TTFT: p.TTFT,
		SLO: router.ProfileSLO{
			TPOT: p.SLO.TPOT.Seconds(), TTFT: p.SLO.TTFT.Seconds(), TPAT: p.SLO.TPAT.Seconds(), E2E: p.SLO.E2E.Seconds(),
		},
	}
}

// RefreshInterval is between two reads of the engines' metrics: the environment's
// AIBRIX_POD_METRIC_REFRESH_INTERVAL_MS, or else metrics_interval.
func (r *Router) RefreshInterval() simtime.Time {
	if _, set := r.Env["AIBRIX_POD_METRIC_REFRESH_INTERVAL_MS"]; set {
		if s, err := r.Settings(); err == nil {
			return s.Refresh
		}
	}
	return r.MetricsInterval.Time
}
