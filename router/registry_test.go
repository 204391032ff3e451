package router

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNames(t *testing.T) {
	for _, name := range []string{
		"least-busy-time", "least-gpu-cache", "least-kv-cache", "least-latency", "least-request", "least-utilization",
		"pd", "power-of-two", "prefix-cache", "prefix-cache-preble", "random", "session-affinity",
		"slo", "slo-least-load", "slo-least-load-pulling", "slo-pack-load", "throughput", "vtc-basic",
	} {
		require.Contains(t, Names(), name)
		p, err := New(name, DefaultSettings(), Options{})
		require.NoError(t, err)
		require.NotNil(t, p)
	}
	require.True(t, slices.IsSorted(Names()))
}

func TestUnknownPolicyNamesOthers(t *testing.T) {
	_, err := New("prefix-cashe", DefaultSettings(), Options{})
	require.EqualError(t, err, `unknown policy "prefix-cashe"; did you mean "prefix-cache"?`)
	_, err = New("prefix-cache:2,leastrequest:1,randum", DefaultSettings(), Options{})
	require.ErrorContains(t, err, `unknown policy "leastrequest"; did you mean "least-request"?`)
	require.ErrorContains(t, err, `unknown policy "randum"; did you mean "random"?`)
	_, err = New("prefix", DefaultSettings(), Options{})
	require.EqualError(t, err, `unknown policy "prefix"; did you mean "prefix-cache" or "prefix-cache-preble"?`)
	_, err = New("x", DefaultSettings(), Options{})
	require.ErrorContains(t, err, "; allowed: least-busy-time, ")
}

func TestUnknownFixNamesTheNearest(t *testing.T) {
	s := DefaultSettings()
	s.UpstreamFixed = map[string]bool{"lru_keeps_head": true}
	_, err := New("random", s, Options{})
	require.ErrorContains(t, err, `no switch "lru_keeps_head"; the nearest is "lru_keeps_heads"`)
	for _, f := range UpstreamFixes() {
		require.NotEmpty(t, f.Description)
	}
}

func TestRegisterPanicsOnMistakes(t *testing.T) {
	f := func(Settings, Options) (Policy, error) { return randomPolicy{}, nil }
	require.PanicsWithValue(t, "router: Register called twice for policy random", func() { Register("random", f) })
	require.Panics(t, func() { Register("a,b", f) })
	require.Panics(t, func() { Register("", f) })
	require.Panics(t, func() { Register("nothing", nil) })
}

func TestParseStrategies(t *testing.T) {
	for list, want := range map[string][]strategy{
		"random":                         {{"random", 1}},
		"prefix-cache:2,least-request:1": {{"prefix-cache", 2}, {"least-request", 1}},
		" a : 2 , b ":                    {{"a", 2}, {"b", 1}},
		"a:0,b":                          {{"b", 1}},
		"a:1000000":                      {{"a", 1_000_000}},
		"least-request,pd,slo":           {{"pd", 1}},
		"least-request,slo-pack-load:5":  {{"slo-pack-load", 5}},
		"pd:0,least-request":             {{"least-request", 1}},
	} {
		got, err := parseStrategies(list)
		require.NoError(t, err, list)
		require.Equal(t, want, got, list)
	}
	for list, message := range map[string]string{
		"":            "no policy name",
		"a,,b":        "no policy name",
		"a:x":         "want a whole number from 0 to 1000000",
		"a:-1":        "want a whole number from 0 to 1000000",
		"a:1000001":   "want a whole number from 0 to 1000000",
		"a:1:2":       "want a whole number from 0 to 1000000",
		"a:0,b:0":     "every weight is 0",
		":3":          "no policy name",
		"a:1.5,b:, :": "b: weight",
	} {
		_, err := parseStrategies(list)
		require.ErrorContains(t, err, message, list)
	}
}

func TestMultiStrategyNeedsScorers(t *testing.T) {
	for _, name := range []string{"random", "power-of-two"} {
		_, err := New("least-request,"+name, DefaultSettings(), Options{})
		require.ErrorContains(t, err, `policy "`+name+`" cannot score pods`)
	}
	for _, name := range []string{"prefix-cache", "prefix-cache-preble", "session-affinity", "vtc-basic", "least-latency", "throughput"} {
		p, err := New("least-request,"+name, DefaultSettings(), Options{})
		require.NoError(t, err)
		require.IsType(t, &multiStrategy{}, p)
	}
}

// Three pods, weights 3 and 1: prefix percentages 100/50/0 give 1/0.5/0, counts
// 4/2/0 give 0/0.5/1, so the sums are 0.75, 0.5 and 0.25.
func TestMultiStrategyByHand(t *testing.T) {
	p, err := New("prefix-cache:3,least-request:1", DefaultSettings(), Options{})
	require.NoError(t, err)
	m := p.(*multiStrategy)
	pods := []Pod{{ID: 0, Running: 4}, {ID: 1, Running: 2}, {ID: 2}}
	whole := longText("a", 512)
	m.Remember(0, &Request{Prompt: whole}, 0)
	m.Remember(0, &Request{Prompt: whole[:256]}, 1)
	d, err := m.Route(0, &Request{Prompt: whole}, pods, newRand())
	require.NoError(t, err)
	require.Equal(t, 0, d.Pod)
	require.InDeltaSlice(t, []float64{0.75, 0.5, 0.25}, m.final, 1e-12)
	require.Equal(t, 4, m.IndexStats(0).Entries)
}

func TestNormalise(t *testing.T) {
	scores := []float64{3, missing(), 1, 2}
	normalise(scores, false)
	require.Equal(t, []float64{1, 0, 0, 0.5}, scores)
	scores = []float64{7, missing(), 7}
	normalise(scores, true)
	require.Equal(t, []float64{1, 0, 1}, scores)
	require.Equal(t, 0, firstHighest([]float64{0.5, 0.5 + 1e-10, 0.1}), "within 1e-9 the first wins")
	require.Equal(t, 1, firstHighest([]float64{0.5, 0.6, 0.6}))
}

func FuzzParseStrategies(f *testing.F) {
	for _, list := range []string{"random", "a:2,b:1,c", "a:0", ",", "pd,slo", "a:1000000", " : "} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		strategies, err := parseStrategies(list)
		if err != nil {
			require.Nil(t, strategies)
			return
		}
		require.NotEmpty(t, strategies)
		for _, s := range strategies {
			require.NotEmpty(t, s.name)
			require.Equal(t, strings.TrimSpace(s.name), s.name)
			require.True(t, s.weight > 0 && s.weight <= maxWeight)
		}
	})
}
