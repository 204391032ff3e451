package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/sim/record"
)

func TestLedgerShare(t *testing.T) {
	gone := ledgerShare("gone_share")
	p := &record.Phase{}
	require.Equal(t, record.Float{}, gone(p))
	p.Other = map[string]json.RawMessage{"ledgers": json.RawMessage(`{"gone_share":0.25,"unknown_share":null}`)}
	require.Equal(t, record.Some(0.25), gone(p))
	require.Equal(t, record.Float{}, ledgerShare("unknown_share")(p))
}

// The columns are there where the ledgers were compared, and nowhere else.
func TestLedgerColumns(t *testing.T) {
	names := func(phases ...*record.Phase) (n []string) {
		for _, c := range shown(phases) {
			n = append(n, c.name)
		}
		return n
	}
	compared := &record.Phase{Other: map[string]json.RawMessage{"ledgers": json.RawMessage(`{"gone_share":0.25,"unknown_share":0}`)}}
	require.Subset(t, names(&record.Phase{}, compared), []string{"index gone", "KV unknown"})
	require.NotContains(t, names(&record.Phase{}), "index gone")
}
