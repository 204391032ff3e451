package scenario

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEmbeddedScenariosLoad(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			sc, err := Load(name)
			require.NoError(t, err)
			require.Equal(t, name, sc.Name)
			require.NotEmpty(t, sc.Description)
		})
	}
}
