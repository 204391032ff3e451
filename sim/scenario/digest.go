package scenario

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Digest identifies the experiment: the SHA-256, in hexadecimal, of all that
// sc says, whatever the file's layout, comments and spelled-out defaults. The
// description does not count; nor do the contents of a profile or trace file
// that sc names.
func Digest(sc *Scenario) string {
	c := *sc
	c.Description = ""
	canonical, err := json.Marshal(c)
	if err != nil {
		panic(err) // a Scenario holds nothing that JSON has no form for
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])
}
