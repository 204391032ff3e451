package spelling

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"kitten", "sitting", 3},
		{"replicas", "replcias", 1}, // neighbours swapped
		{"ca", "abc", 3},            // no edit inside a swap
		{"rate", "rates", 1},
	} {
		require.Equal(t, c.want, distance(c.a, c.b), "%q %q", c.a, c.b)
		require.Equal(t, c.want, distance(c.b, c.a), "%q %q", c.b, c.a)
	}
}

func TestDistanceProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[a-c]{0,6}`)
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		d := distance(a, b)
		require.Equal(t, a == b, d == 0)
		require.GreaterOrEqual(t, d, max(len(a), len(b))-min(len(a), len(b)))
		require.LessOrEqual(t, d, max(len(a), len(b)))
		require.Equal(t, d, distance(b, a))
	})
}

func TestSuggest(t *testing.T) {
	known := []string{"random", "prefix-cache", "least-request", "least-latency"}
	for _, c := range []struct{ name, want string }{
		{"prefix-cach", `; did you mean "prefix-cache"?`},
		{"Random", `; did you mean "random"?`},
		{"least_requests", `; did you mean "least-request"?`},
		{"Prefix", `; did you mean "prefix-cache"?`},
		{"least", `; did you mean "least-latency" or "least-request"?`},
		{"cache", "; allowed: least-latency, least-request, prefix-cache, random"},
		{"throughput", "; allowed: least-latency, least-request, prefix-cache, random"},
		{"", "; allowed: least-latency, least-request, prefix-cache, random"},
	} {
		require.Equal(t, c.want, Suggest(c.name, known), "%q", c.name)
	}
	require.Empty(t, Suggest("x", nil))
	require.Equal(t, "random", Nearest("radnom", known))
	require.Equal(t, "prefix-cache", Nearest("prefix-", known), "however far")
	require.Empty(t, Nearest("x", nil))
	require.Equal(t, []string{"random", "prefix-cache", "least-request", "least-latency"}, known)
}
