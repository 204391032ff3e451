package strict

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPath(t *testing.T) {
	p := Path("").Key("a").Key("b.c").Index(2).Key("")
	require.Equal(t, Path(`a."b.c".2.""`), p)
	require.Equal(t, Path(`a."b.c".2`), p.parent())
	require.True(t, Path("a").contains("a.b"))
	require.True(t, Path("").contains("a.b"))
	require.False(t, Path("a").contains("ab"))
	require.True(t, Path("a.b").Overlaps("a"))
	require.False(t, Path("a.b").Overlaps("a.c"))
}
