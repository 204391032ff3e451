package text

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/random"
	"fleetsim/router"
	"fleetsim/workload"
)

func TestTokenRule(t *testing.T) {
	for s, want := range map[string]int{
		"":                0,
		"word":            1,
		" word":           1,
		"  word":          2, // a space of its own, then one with the word
		"two words":       2,
		"two words.":      3,
		"a1b22c":          6,
		"3fa9":            3,
		"Zürich":          3, // Z, ü, rich
		" ":               1,
		"\n\n":            2,
		"日本":              2,
		"\xff\xfe":        2, // not UTF-8: a byte is a character
		"it's":            3,
		" The end. 42!\n": 8,
	} {
		require.Equal(t, want, Text(s).Len(workload.Tokens), "%q", s)
	}
}

// Text has exactly the bytes of the symbolic prompt and, whenever a token takes
// at least a byte, its tokens; and prompts share blocks as the symbolic do.
func TestTextMatchesSymbolicPrompts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := func(name string) (bytes, tokens int) {
			bytes = rapid.IntRange(0, 60).Draw(t, name)
			if bytes > 0 {
				tokens = rapid.IntRange(1, bytes).Draw(t, name+" tokens")
			}
			return bytes, tokens
		}
		var s workload.Shape
		s.SaltBytes, s.SaltTokens = part("salt")
		s.HeadBytes, s.HeadTokens = part("head")
		s.BodyBytes, s.BodyTokens = part("body")
		s.QuestionBytes, s.QuestionTokens = part("question")
		families := rapid.IntRange(0, 3).Draw(t, "families")
		symbolic := workload.NewGenerator(s, families, 0, random.Stream(1, "prompts"))
		g := New(s, "salt")
		var prompts []workload.Prompt
		for i := range 6 {
			family := -1
			if families > 0 {
				family = i % families
			}
			prompts = append(prompts, symbolic.Prompt(nil, family, i*i*i, rapid.IntRange(0, 4).Draw(t, "repeat")))
		}
		for i, p := range prompts {
			text := g.Text(p)
			require.Equal(t, p.Len(workload.Bytes), text.Len(workload.Bytes))
			require.Equal(t, p.Len(workload.Tokens), text.Len(workload.Tokens), "%q", text)
			require.Equal(t, text, New(s, "salt").Text(p), "deterministic")
			for _, q := range prompts[:i] {
				for _, u := range []workload.Unit{workload.Tokens, workload.Bytes} {
					const block = 5
					want := shared(p.AppendHashes(nil, 0, block, u), q.AppendHashes(nil, 0, block, u))
					got := shared(text.AppendHashes(nil, 0, block, u), g.Text(q).AppendHashes(nil, 0, block, u))
					require.GreaterOrEqual(t, got, want, "%q and %q share what the symbols do", text, g.Text(q))
				}
			}
		}
	})
}

func shared(a, b []uint64) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// In the studies' shape families share nothing with each other, and all but the
// question within.
func TestStudyShape(t *testing.T) {
	g := New(studyShape, "r1")
	symbolic := workload.NewGenerator(studyShape, 8, 0, random.Stream(102, "prompts"))
	const block = 1568
	hashes := func(family, index int) []uint64 {
		p := symbolic.Prompt(nil, family, index, 300)
		text := g.Text(p)
		require.Equal(t, p.Len(workload.Tokens), text.Len(workload.Tokens))
		require.Equal(t, p.Len(workload.Bytes), len(text))
		return text.AppendHashes(nil, 0, block, workload.Tokens)
	}
	require.Len(t, hashes(0, 0), 3)
	require.Equal(t, 3, shared(hashes(0, 0), hashes(0, 95)))
	for f := 1; f < 8; f++ {
		require.Equal(t, 0, shared(hashes(0, 0), hashes(f, 1)))
	}
}

var studyShape = workload.Shape{
	SaltBytes: 256, SaltTokens: 211, SaltSpread: 4, HeadBytes: 24, HeadTokens: 8,
	BodyRepeat: 300, BodyBytes: 95, BodyTokens: 16, QuestionBytes: 90, QuestionTokens: 26,
}

func TestSaltAndCandidatesKeepDocumentsApart(t *testing.T) {
	symbolic := workload.NewGenerator(studyShape, 2, 0, random.Stream(1, "prompts"))
	p := symbolic.Prompt(nil, 1, 7, 3)
	g := New(studyShape, "a")
	plain, first, second := g.Text(p), g.Candidate(p, 0), g.Candidate(p, 1)
	texts := []Text{plain, New(studyShape, "b").Text(p), first, second}
	for i, a := range texts {
		for _, b := range texts[:i] {
			require.Equal(t, 0, shared(a.AppendHashes(nil, 0, 128, workload.Bytes), b.AppendHashes(nil, 0, 128, workload.Bytes)))
		}
	}
	require.Equal(t, plain, g.Text(p), "asking for a candidate assigns nothing")
	g.Assign(p[0], 1)
	require.Equal(t, second, g.Text(p))
}

func TestHashesByBytesAreTheGateways(t *testing.T) {
	const s = "some text that is longer than a few blocks of eight bytes"
	require.Equal(t, router.Text(s).AppendHashes(nil, 3, 8, workload.Bytes), Text(s).AppendHashes(nil, 3, 8, workload.Bytes))
}

// An answer follows its prompt without joining a token, so that the tokens of
// both add up and a next turn finds them.
func TestAnswer(t *testing.T) {
	a := AnswerTo("cmpl-1")
	prompt := Text("What is it")
	require.Equal(t, 3+50, (prompt + a.Text(50)).Len(workload.Tokens))
	require.Equal(t, string(a.Text(50)), string(a.Append(a.Append(nil, 0, 20), 20, 50)))
	require.NotEqual(t, a.Text(20), AnswerTo("cmpl-2").Text(20))
}

func FuzzTokens(f *testing.F) {
	f.Add("two words. 42", 3)
	f.Add(" \xff é", 1)
	f.Fuzz(func(t *testing.T, s string, block int) {
		if block < 1 {
			t.Skip()
		}
		tokens := Text(s).Len(workload.Tokens)
		require.LessOrEqual(t, tokens, len(s))
		require.Len(t, Text(s).AppendHashes(nil, 0, block, workload.Tokens), tokens/block)
	})
}
