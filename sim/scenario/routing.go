package scenario

import (
	"slices"
	"strings"

	"fleetsim/router"
	"fleetsim/sim/autoscale"
	"fleetsim/sim/scenario/strict"
)

// policies checks that the router can make every policy.
func (c *checker) policies(sc *Scenario) {
	if len(sc.Policies) == 0 {
		c.bad("policies", "policies must list at least one of %s", strings.Join(router.Names(), ", "))
	}
	settings, err := router.ParseSettings(sc.Router.Env)
	if err != nil {
		settings = router.DefaultSettings() // what is wrong is reported with the router
	}
	for i, policy := range sc.Policies {
		p := strict.Path("policies").Index(i)
		_, err := router.New(policy, settings, router.Options{})
		c.errors(p, err)
		if slices.Contains(sc.Policies[:i], policy) {
			c.bad(p, "policy %q is listed twice", policy)
		}
	}
}

func (c *checker) router(r *Router) {
	c.count("router.gateways", r.Gateways, 1, maxReplicas)
	c.positiveSpan("router.metrics_interval", r.MetricsInterval)
	c.environment(r.Env)
	fixes := autoscale.Fixes()
	for _, f := range router.UpstreamFixes() {
		fixes = append(fixes, f.Name)
	}
	for i, name := range r.UpstreamFixed {
		c.oneOf(strict.Path("router.upstream_fixed").Index(i), name, fixes)
	}
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
