package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"fleetsim/calibrate/live"
	"fleetsim/calibrate/live/plan"
	"fleetsim/calibrate/live/text"
	"fleetsim/sim"
	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
)

const replayHelp = `
Usage: sim replay SCENARIO --url URL --max-requests N --max-duration D [flags]

Sends the scenario's own arrivals to a live OpenAI-compatible gateway, one phase
a policy, and writes the same records as sim run --out. Nothing is retried unless
asked; the limits are on everything that is sent. --dry-run only says what would
be. Hosts other than this machine need --yes-send-traffic.

Example: sim replay hot90 --url http://127.0.0.1:8080 --policy prefix-cache --max-requests 200 --max-duration 10m --out runs/live`

// replayFlags are what `sim replay` was asked for.
type replayFlags struct {
	url, model, out, endpoint, authEnv, salt, seed, gateway string
	policies, sets, headers, aliases, engines               []string
	maxRequests, retries                                    int
	maxDuration, silence, drain, connect                    time.Duration
	speed                                                   string
	start, whole, dryRun, anywhere                          bool
}

func replayCommand(args []string, stdout, stderr io.Writer) int {
	var o replayFlags
	f := newFlags("replay", replayHelp, stdout, stderr)
	f.StringVar(&o.url, "url", "", "the gateway, such as http://127.0.0.1:8080")
	f.StringVar(&o.out, "out", "", "directory for the records")
	f.IntVar(&o.maxRequests, "max-requests", 0, "most requests to send in all, warm-up, priming and retries included (required)")
	f.DurationVar(&o.maxDuration, "max-duration", 0, "most time to take in all (required)")
	f.StringVar(&o.model, "model", "", "model to ask for (default: the scenario's profile)")
	f.StringArrayVar(&o.policies, "policy", nil, "routing-strategy to send, instead of the scenario's (repeatable)")
	f.StringVar(&o.endpoint, "endpoint", "completions", "completions or chat")
	f.BoolVar(&o.whole, "no-stream", false, "ask for answers in one piece, which have no TTFT")
	f.StringArrayVar(&o.headers, "header", nil, "further header, NAME=VALUE (repeatable)")
	f.StringVar(&o.authEnv, "auth-env", "", "environment variable that holds the Authorization header, such as \"Bearer …\"")
	f.StringVar(&o.speed, "speed", "1", "send faster by this factor; the records' times are multiplied by it")
	f.StringVar(&o.seed, "seed", "", "seed, instead of the scenario's")
	f.StringArrayVar(&o.sets, "set", nil, "change one key of the scenario: path.to.key=value (repeatable)")
	f.StringVar(&o.salt, "salt", "", "salt of the prompts (default: a fresh one, so that no cache knows them)")
	f.StringArrayVar(&o.aliases, "alias", nil, "name for a pod in the records, POD=NAME (repeatable)")
	f.StringArrayVar(&o.engines, "engine", nil, "an engine to observe, NAME=URL with /metrics below it (repeatable)")
	f.StringVar(&o.gateway, "gateway-metrics", "", "URL of the gateway's metrics page")
	f.BoolVar(&o.start, "controlled-start", false, "warm up, empty the prefix caches and prime documents before each phase")
	f.IntVar(&o.retries, "retries", 0, "further attempts at a request that got 429 or 503")
	f.DurationVar(&o.connect, "connect-timeout", 10*time.Second, "to open a connection")
	f.DurationVar(&o.silence, "read-timeout", 2*time.Minute, "how long the server may say nothing")
	f.DurationVar(&o.drain, "drain-timeout", 2*time.Minute, "after the last request, how long answers may take")
	f.BoolVar(&o.dryRun, "dry-run", false, "say what would be sent, and send nothing")
	f.BoolVar(&o.anywhere, "yes-send-traffic", false, "allow hosts other than this machine")
	if status, ok := f.parse(args); !ok {
		return status
	}
	r, err := o.replay(f.Args())
	if err != nil {
		return f.fail(statusUsage, err)
	}
	if o.dryRun {
		err = r.dryRun(stdout)
	} else {
		ctx, stop := untilInterrupt()
		defer stop()
		err = r.run(ctx, stdout)
	}
	if err != nil {
		return f.fail(statusFailed, err)
	}
	return statusOK
}

// A replay is what the flags ask for.
type replay struct {
	flags   *replayFlags
	options live.Options
	salt    string
	phases  []replayPhase
}

type replayPhase struct{ name, policy string }

// replay checks all flags and reports every problem.
func (o *replayFlags) replay(names []string) (*replay, error) {
	if len(names) != 1 {
		return nil, errors.New("replay takes one SCENARIO (see sim replay --help)")
	}
	sets, err := withPolicies(o.sets, o.policies)
	if err != nil {
		return nil, err
	}
	sc, err := scenario.LoadWith(names[0], sets)
	if err != nil {
		return nil, atPolicyFlag(o.policies, err)
	}
	r := &replay{flags: o, salt: o.salt}
	var problems []error
	check := func(err error) { problems = append(problems, err) }
	seed, err := seedOr(o.seed, sc.Seed)
	check(err)
	speed, err := parseSpeed(o.speed)
	check(err)
	check(oneOf("endpoint", o.endpoint, "completions", "chat"))
	check(o.limits())
	base, err := o.address("url", o.url)
	check(err)
	header, err := o.header()
	check(err)
	alias, err := pairs("alias", o.aliases)
	check(err)
	engines, err := o.engineList()
	check(err)
	if o.gateway != "" {
		_, err = o.address("gateway-metrics", o.gateway)
		check(err)
	}
	if o.out == "" && !o.dryRun {
		check(errors.New("--out is missing: a directory for the records"))
	}
	if o.out != "" {
		check(checkDir(o.out))
		check(apart(append(filesOf(sc), inputFiles(names...)...),
			inDir("--out", o.out, record.PhasesFile, record.RequestsFile, sim.TimelineFile, live.SendsFile)...))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	if r.salt == "" {
		r.salt = freshSalt()
	}
	r.options = live.Options{
		Scenario: sc, Seed: seed, Now: time.Now, Speed: speed, Silence: o.silence, Drain: o.drain, Retries: o.retries,
		Target: live.Target{URL: base, Model: o.model, Chat: o.endpoint == "chat", Whole: o.whole, Header: header},
		Alias:  aliases(alias), Engines: engines, Gateway: o.gateway,
	}
	if o.model == "" {
		r.options.Target.Model = sc.Profile
	}
	if o.authEnv != "" {
		if r.options.Target.Authorization = os.Getenv(o.authEnv); r.options.Target.Authorization == "" {
			return nil, fmt.Errorf("--auth-env %s: the environment has no such variable", o.authEnv)
		}
	}
	for _, policy := range sc.Policies {
		r.phases = append(r.phases, replayPhase{sc.Name + "-" + policy, policy})
	}
	return r, r.fits()
}

// limits are those that must be given, and those that must make sense.
func (o *replayFlags) limits() error {
	var problems []error
	if o.maxRequests < 1 {
		problems = append(problems, errors.New("--max-requests is missing: the most requests to send in all, at least 1"))
	}
	if o.maxDuration <= 0 {
		problems = append(problems, errors.New("--max-duration is missing: the most time to take in all, such as 10m"))
	}
	if o.connect <= 0 || o.silence <= 0 || o.drain <= 0 {
		problems = append(problems, errors.New("--connect-timeout, --read-timeout and --drain-timeout must be above 0s"))
	}
	if o.retries < 0 || o.retries > 100 {
		problems = append(problems, fmt.Errorf("--retries %d: allowed is 0 to 100", o.retries))
	}
	return errors.Join(problems...)
}

// address checks a URL to send to.
func (o *replayFlags) address(flag, s string) (string, error) {
	u, err := url.Parse(s)
	switch {
	case s == "":
		return "", fmt.Errorf("--%s is missing: a URL such as http://127.0.0.1:8080", flag)
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return "", fmt.Errorf("--%s %q: allowed is a URL such as http://127.0.0.1:8080", flag, s)
	case u.User != nil:
		return "", fmt.Errorf("--%s: a password in the URL would be seen; name an environment variable with --auth-env", flag)
	case !o.anywhere && !o.dryRun && !live.IsLoopbackHost(u.Hostname()):
		return "", fmt.Errorf("--%s %s is not this machine: --yes-send-traffic says that it may be sent traffic", flag, u.Host)
	}
	return s, nil
}

func (o *replayFlags) header() (http.Header, error) {
	given, err := pairs("header", o.headers)
	header := make(http.Header)
	for _, h := range given {
		if name := http.CanonicalHeaderKey(h.name); name == "Authorization" {
			err = errors.Join(err, errors.New("--header Authorization would be seen in the process list; name an environment variable with --auth-env"))
		}
		header.Add(h.name, h.value)
	}
	return header, err
}

func (o *replayFlags) engineList() ([]live.Engine, error) {
	given, err := pairs("engine", o.engines)
	var engines []live.Engine
	problems := []error{err}
	for _, e := range given {
		address, err := o.address("engine", e.value)
		problems = append(problems, err)
		engines = append(engines, live.Engine{Name: e.name, URL: address})
	}
	return engines, errors.Join(problems...)
}

// A pair is a flag's NAME=VALUE.
type pair struct{ name, value string }

func pairs(flag string, values []string) ([]pair, error) {
	var out []pair
	var problems []error
	for _, v := range values {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" || value == "" {
			problems = append(problems, fmt.Errorf("--%s %q: allowed is NAME=VALUE", flag, v))
			continue
		}
		for _, p := range out {
			if p.name == name {
				problems = append(problems, fmt.Errorf("--%s %s is given twice", flag, name))
			}
		}
		out = append(out, pair{name, value})
	}
	return out, errors.Join(problems...)
}

func aliases(given []pair) map[string]string {
	m := make(map[string]string)
	for _, p := range given {
		m[p.name] = p.value
	}
	return m
}

// freshSalt is one that no cache has seen.
func freshSalt() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// fits reports a plan that the limits would cut.
func (r *replay) fits() error {
	sc := r.options.Scenario
	if sc.Workload.Arrivals == nil {
		_, err := plan.New(sc, r.options.Seed)
		return err
	}
	total, err := plan.Sum(sc, r.options.Seed)
	if err != nil {
		return err
	}
	if n := total.Requests * len(r.phases); n > r.flags.maxRequests {
		return fmt.Errorf("--max-requests %d: the plan sends %d requests in %d phases, beside warm-up and priming", r.flags.maxRequests, n, len(r.phases))
	}
	return nil
}

// replayer is a replayer for the phase; each phase has a salt of its own when
// its start is controlled, so that no phase finds the contents of another.
func (r *replay) replayer(p replayPhase, t *live.Transport) *live.Replayer {
	o := r.options
	salt := r.salt
	if r.flags.start {
		salt += "/" + p.name
	}
	o.Texts = text.New(sim.Shape(o.Scenario.Workload.Prompt), salt)
	return live.New(o, t)
}

func (r *replay) dryRun(stdout io.Writer) error {
	for _, p := range r.phases {
		if err := r.replayer(p, nil).WritePlan(stdout, p.name, p.policy); err != nil {
			return err
		}
	}
	if r.flags.start {
		fmt.Fprintf(stdout, "controlled start: up to %d requests a phase\n", live.StudyStart().MaxRequests(r.options.Scenario, len(r.options.Engines)))
	}
	fmt.Fprintf(stdout, "limits: %d requests, %v\nsalt: %s\nnothing was sent\n", r.flags.maxRequests, r.flags.maxDuration, r.salt)
	return nil
}

// run replays the phases and writes what was recorded, also when it is stopped.
func (r *replay) run(ctx context.Context, stdout io.Writer) error {
	ctx, cancel := live.WithMaxDuration(ctx, r.flags.maxDuration)
	defer cancel()
	t := live.NewTransport(r.flags.connect, r.flags.anywhere)
	defer t.Close()
	r.options.Budget = live.NewBudget(r.flags.maxRequests)
	var results []*live.Result
	var err error
	for _, p := range r.phases {
		if err = context.Cause(ctx); err != nil {
			break
		}
		var result *live.Result
		if result, err = r.phase(ctx, p, t); err != nil {
			err = fmt.Errorf("phase %s: %w", p.name, err)
			break
		}
		results = append(results, result)
	}
	if len(results) > 0 {
		var phases []*record.Phase
		for _, result := range results {
			phases = append(phases, &result.Phase)
		}
		if writeErr := errors.Join(live.WriteDir(r.flags.out, results), printPhases(stdout, "table", phases)); writeErr != nil {
			return errors.Join(err, writeErr)
		}
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w; %d of %d phases are kept", err, len(results), len(r.phases))
	}
	return nil
}

func (r *replay) phase(ctx context.Context, p replayPhase, t *live.Transport) (*live.Result, error) {
	replayer := r.replayer(p, t)
	var prepared *live.Prepared
	if r.flags.start {
		var err error
		if prepared, err = replayer.Prepare(ctx, live.StudyStart()); err != nil {
			return nil, err
		}
	}
	result, err := replayer.Phase(ctx, p.name, p.policy)
	if err == nil && prepared != nil {
		prepared.Describe(result)
	}
	return result, err
}
