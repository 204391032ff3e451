package main

import (
	"encoding/json"

	"fleetsim/sim/record"
)

// ledgerShare is a member of the record's comparison of index and caches; absent
// where they were not compared.
func ledgerShare(member string) func(*record.Phase) record.Float {
	return func(p *record.Phase) record.Float {
		var members map[string]json.RawMessage
		var share record.Float
		if json.Unmarshal(p.Other["ledgers"], &members) != nil || json.Unmarshal(members[member], &share) != nil {
			return record.Float{}
		}
		return share
	}
}
