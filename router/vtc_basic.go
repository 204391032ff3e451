package router

import (
	"math"
	"math/rand/v2"

	"fleetsim/simtime"
	"fleetsim/workload"
)

func init() {
	Register("vtc-basic", func(s Settings, _ Options) (Policy, error) {
		return &vtcBasic{settings: s.VTC, users: make(map[string]*vtcUser)}, nil
	})
}

// vtcBasic maps a user's recent tokens onto a place in the list of pods, the
// heaviest users at its end, and weighs the distance from that place against the
// engine's load. Since the list is shuffled for every request, a place means no
// particular pod; that is the original's doing. A request without a user goes to
// any pod with the same chance.
type vtcBasic struct {
	settings VTCSettings
	users    map[string]*vtcUser
	scores   []float64 // scratch
}

// A vtcUser is a user's token count in the sliding window.
type vtcUser struct {
	buckets []vtcBucket // oldest first
	total   float64
}

// A vtcBucket is what a user consumed in one second (or millisecond, when that is
// the window's unit).
type vtcBucket struct {
	at     int64
	tokens float64
}

// vtcJitter is the width of the uniform noise on a score.
const vtcJitter = 0.1

// OrderSensitive is true: scores depend on the place in the list.
func (p *vtcBasic) OrderSensitive() bool { return true }

func (p *vtcBasic) Route(now simtime.Time, req *Request, pods []Pod, rng *rand.Rand) (Decision, error) {
	if req.User == "" {
		return Decision{Pod: rng.IntN(len(pods))}, nil
	}
	p.scores = resize(p.scores, len(pods))
	p.Score(now, req, pods, rng, p.scores)
	chosen := 0
	for i, s := range p.scores {
		if s < p.scores[chosen] {
			chosen = i
		}
	}
	p.Routed(now, req, pods, chosen)
	return Decision{Pod: chosen}, nil
}

// Score gives the weighted sum of a pod's distance from the user's place and of
// its load, plus noise. Without a user it scores nobody.
func (p *vtcBasic) Score(now simtime.Time, req *Request, pods []Pod, rng *rand.Rand, scores []float64) {
	place := p.place(now, req.User, len(pods))
	for i := range pods {
		if req.User == "" {
			scores[i] = missing()
			continue
		}
		load := math.Min(pods[i].Metrics.EngineRunning.Or(0)/p.settings.MaxPodLoad, 1)
		scores[i] = p.settings.FairnessWeight*math.Abs(float64(i)-place) +
			p.settings.UtilizationWeight*load + vtcJitter*rng.Float64()
	}
}

// LowerIsBetter is true.
func (p *vtcBasic) LowerIsBetter() bool { return true }

// place is where in a list of n pods a user belongs: the user's tokens in units
// of an average between the lightest and the heaviest user, at most n-1.
func (p *vtcBasic) place(now simtime.Time, user string, n int) float64 {
	tokens := 0.0
	if u := p.users[user]; u != nil {
		p.prune(now, u)
		tokens = u.total
	}
	least, most := p.extremes()
	unit := math.Max(p.settings.MinTokens, (least+most)/2)
	return math.Min(tokens/unit, float64(n-1))
}

// extremes are the lowest and the highest total of the users that have one, or
// the settings' defaults without such a user. The total of a user who is not
// heard of any more stays, as in the original, which drops old tokens only when
// the same user comes again.
func (p *vtcBasic) extremes() (least, most float64) {
	least = math.Inf(1)
	for _, u := range p.users {
		if u.total > 0 {
			least, most = math.Min(least, u.total), math.Max(most, u.total)
		}
	}
	if most == 0 {
		return p.settings.MinTokens, p.settings.MaxTokens
	}
	return least, most
}

// Routed charges the user with the input and an output of one and a half times
// its length, at 4 bytes a token.
func (p *vtcBasic) Routed(now simtime.Time, req *Request, _ []Pod, _ int) {
	if req.User == "" {
		return
	}
	bytes := 0
	if req.Prompt != nil {
		bytes = req.Prompt.Len(workload.Bytes)
	}
	input := math.Ceil(float64(bytes) / 4)
	output := math.Ceil(1.5 * input)
	p.charge(now, req.User, input*p.settings.InputTokenWeight+output*p.settings.OutputTokenWeight)
}

func (p *vtcBasic) charge(now simtime.Time, user string, tokens float64) {
	u := p.users[user]
	if u == nil {
		u = &vtcUser{}
		p.users[user] = u
	}
	p.prune(now, u)
	u.total += tokens
	at := int64(now / p.resolution())
	if n := len(u.buckets); n > 0 && u.buckets[n-1].at == at {
		u.buckets[n-1].tokens += tokens
		return
	}
	u.buckets = append(u.buckets, vtcBucket{at, tokens})
}

// prune drops the buckets from before the window.
func (p *vtcBasic) prune(now simtime.Time, u *vtcUser) {
	cutoff := int64((now - simtime.Time(p.settings.Window)*p.settings.Unit) / p.resolution())
	old := 0
	for old < len(u.buckets) && u.buckets[old].at < cutoff {
		u.total = math.Max(0, u.total-u.buckets[old].tokens)
		old++
	}
	u.buckets = append(u.buckets[:0], u.buckets[old:]...)
}

// resolution is the width of a bucket.
func (p *vtcBasic) resolution() simtime.Time {
	return min(p.settings.Unit, simtime.Second)
}
