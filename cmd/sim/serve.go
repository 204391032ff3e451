package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"fleetsim/calibrate/live/server"
	"fleetsim/model/profiles"
	"fleetsim/sim/scenario"
)

const serveHelp = `
Usage: sim serve SCENARIO [flags]

Runs the scenario's cluster in real time behind an OpenAI-compatible front end:
/v1/completions, /v1/chat/completions, /v1/models, /health, /metrics and
/reset_prefix_cache, each also for one engine under /pods/NAME, and
/admin/pods/NAME/drain. The load is yours: sim replay, or any client.

Example: sim serve hot90 --listen 127.0.0.1:8080 --speed 10`

// serveFlags are what `sim serve` was asked for.
type serveFlags struct {
	listen  string
	speed   string
	policy  string
	model   string
	profile string
	seed    string
	salt    string
	sets    []string
	maxBody int64
	timeout time.Duration
	drain   time.Duration
}

func serveCommand(args []string, stdout, stderr io.Writer) int {
	var o serveFlags
	f := newFlags("serve", serveHelp, stdout, stderr)
	f.StringVar(&o.listen, "listen", "127.0.0.1:8080", "address to listen on; port 0 takes a free one")
	f.StringVar(&o.speed, "speed", "1", "pace of the cluster's time: a factor, or max to wait for nothing")
	f.StringVar(&o.policy, "policy", "", "routing policy of requests that name none (default: the scenario's first)")
	f.StringVar(&o.model, "model", "", "name of the model (default: the profile's)")
	f.StringVar(&o.profile, "profile", "", "profile, a built-in name or a .toml file, instead of the scenario's")
	f.StringVar(&o.seed, "seed", "", "seed, instead of the scenario's")
	f.StringVar(&o.salt, "salt", "sim", "salt of the prompts that caches and index hold at the start; sim replay takes the same")
	f.StringArrayVar(&o.sets, "set", nil, "change one key of the scenario: path.to.key=value (repeatable)")
	f.Int64Var(&o.maxBody, "max-body", server.DefaultMaxBody, "largest request body, bytes")
	f.DurationVar(&o.timeout, "client-timeout", server.DefaultClientTimeout, "how long a client may take to send its body or to read an answer's next part")
	f.DurationVar(&o.drain, "drain-timeout", 30*time.Second, "at the end, how long requests in flight may take before they are aborted")
	if status, ok := f.parse(args); !ok {
		return status
	}
	s, notes, err := o.server(f.Args())
	if err != nil {
		return f.fail(statusUsage, err)
	}
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return f.fail(statusUsage, fmt.Errorf("--listen: %w", err))
	}
	for _, note := range notes {
		fmt.Fprintln(stderr, note)
	}
	fmt.Fprintf(stdout, "serving %s on http://%s at speed %s; its caches hold prompts with --salt %s\n", f.Arg(0), listener.Addr(), o.speed, o.salt)
	ctx, stop := untilInterrupt()
	defer stop()
	if err := serveUntil(ctx, s, listener, o.drain); err != nil {
		return f.fail(statusFailed, err)
	}
	return statusOK
}

// server is the server that the flags ask for, with what must be said of it.
func (o *serveFlags) server(names []string) (*server.Server, []string, error) {
	if len(names) != 1 {
		return nil, nil, errors.New("serve takes one SCENARIO (see sim serve --help)")
	}
	sc, err := scenario.LoadWith(names[0], o.sets)
	if err != nil {
		return nil, nil, err
	}
	name := sc.Profile
	if o.profile != "" {
		name = o.profile
	}
	profile, err := profiles.Load(name)
	if err != nil {
		return nil, nil, err
	}
	seed, err := seedOr(o.seed, sc.Seed)
	if err != nil {
		return nil, nil, err
	}
	clock, err := o.clock()
	if err != nil {
		return nil, nil, err
	}
	if o.maxBody < 1 || o.timeout <= 0 || o.drain < 0 {
		return nil, nil, errors.New("--max-body must be at least 1, --client-timeout above 0s and --drain-timeout at least 0s")
	}
	cluster, err := server.NewCluster(sc, profile, seed, o.salt)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", names[0], err)
	}
	options := server.Options{Model: profile.Name, Policy: sc.Policies[0], Output: sc.Workload.Output, Clock: clock, Now: time.Now,
		MaxBody: o.maxBody, ClientTimeout: o.timeout}
	if o.policy != "" {
		options.Policy = o.policy
	}
	if o.model != "" {
		options.Model = o.model
	}
	if err := cluster.CheckPolicy(options.Policy); err != nil {
		return nil, nil, fmt.Errorf("--policy: %w", err)
	}
	return server.New(cluster, options), notServed(sc), nil
}

// clock is the pace that --speed asks for.
func (o *serveFlags) clock() (server.Clock, error) {
	if o.speed == "max" {
		return server.NewMaxClock(), nil
	}
	speed, err := parseSpeed(o.speed)
	if err != nil {
		return nil, fmt.Errorf("%w, or max", err)
	}
	return server.NewClock(time.Now, speed), nil
}

func parseSpeed(s string) (float64, error) {
	speed, err := strconv.ParseFloat(s, 64)
	if err != nil || !(speed >= 0.001 && speed <= 1000) {
		return 0, fmt.Errorf("--speed %q: allowed is a factor from 0.001 to 1000", s)
	}
	return speed, nil
}

// seedOr is the seed that the flag gives, or def without one.
func seedOr(flag string, def uint64) (uint64, error) {
	if flag == "" {
		return def, nil
	}
	seed, err := strconv.ParseUint(flag, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("--seed %q: allowed is a whole number from 0 to 2^64-1", flag)
	}
	return seed, nil
}

// notServed names the parts of a scenario that serve leaves out.
func notServed(sc *scenario.Scenario) []string {
	var parts []string
	for _, p := range []struct {
		name    string
		present bool
	}{
		{"[admission]", sc.Admission.Quota > 0 || sc.Admission.Rate > 0 || hasQuota(sc.Workload.Tenants)},
		{"[autoscale]", sc.Autoscale.Strategy != ""},
		{"[[faults]]", len(sc.Faults) > 0},
		{"model.noise", sc.Model.Noise != nil && *sc.Model.Noise},
		{"several gateways and delays of [router]", hasDelays(&sc.Router)},
		{"KV cache events", sc.Router.Env["AIBRIX_PREFIX_CACHE_KV_EVENT_SYNC_ENABLED"] == "true"},
	} {
		if p.present {
			parts = append(parts, p.name)
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{"note: serve runs gateway and engines; it leaves out the scenario's " + strings.Join(parts, ", ")}
}

func hasDelays(r *scenario.Router) bool {
	return r.Gateways > 1 || r.ChoiceToCountDelay.Time+r.RoutingLatency.Time+r.EndpointDelay.Time+r.MetricsDelay.Time > 0
}

func hasQuota(tenants []scenario.Tenant) bool {
	for _, t := range tenants {
		if t.Quota != nil {
			return true
		}
	}
	return false
}

// serveUntil serves until ctx ends, then lets what is in flight end within drain.
func serveUntil(ctx context.Context, s *server.Server, l net.Listener, drain time.Duration) error {
	h := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- h.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	// The listener closes at once; streams go on until they end or the grace is over.
	closed := make(chan error, 1)
	go func() { closed <- s.Close(grace) }()
	last, cancelLast := context.WithTimeout(context.Background(), drain+10*time.Second)
	defer cancelLast()
	err := h.Shutdown(last)
	if cut := <-closed; cut != nil && err == nil {
		return fmt.Errorf("requests in flight were aborted after %v", drain)
	}
	return err
}
