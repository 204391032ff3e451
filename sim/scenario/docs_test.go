package scenario

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// docs/scenarios.md has a row for every key in the section of its table.
func TestEveryKeyIsDocumented(t *testing.T) {
	data, err := os.ReadFile("../../docs/scenarios.md")
	require.NoError(t, err)
	scenarios, studies, found := strings.Cut(string(data), "\n# Studies\n")
	require.True(t, found)
	checkDocumented(t, scenarios, keysOf(reflect.TypeFor[Scenario](), ""))
	checkDocumented(t, studies, keysOf(reflect.TypeFor[studyFile](), ""))
}

// docs/policies.md has a row for every switch of router.upstream_fixed.
func TestEveryFixIsDocumented(t *testing.T) {
	data, err := os.ReadFile("../../docs/policies.md")
	require.NoError(t, err)
	for _, name := range fixes() {
		require.Contains(t, string(data), "\n| `"+name+"` | ")
	}
}

func checkDocumented(t *testing.T, text string, keys []string) {
	section := regexp.MustCompile("^(?:## )?`\\[+([a-z_.]+)\\]+`")
	row := regexp.MustCompile("^\\| `([a-z0-9_.\\[\\]]+)` \\|")
	documented := map[string]bool{}
	prefix := ""
	for line := range strings.Lines(text) {
		if m := section.FindStringSubmatch(line); m != nil {
			prefix = m[1] + "."
			documented[m[1]] = true
		}
		if m := row.FindStringSubmatch(line); m != nil {
			documented[prefix+strings.ReplaceAll(m[1], "[]", "")] = true
		}
	}
	stage := regexp.MustCompile(`^lifecycle\.[a-z_]+\.`) // all have one table
	for _, key := range keys {
		require.True(t, documented[stage.ReplaceAllString(key, "lifecycle.")], "%s", key)
		delete(documented, key)
	}
	for _, of := range []string{"mean", "distribution", "sd"} {
		delete(documented, "lifecycle."+of)
	}
	require.Empty(t, documented, "keys that do not exist")
}

// keysOf is the paths of all keys of t and of the tables below it.
func keysOf(t reflect.Type, prefix string) []string {
	var keys []string
	for i := range t.NumField() {
		key := t.Field(i).Tag.Get("toml")
		if key == "" {
			continue
		}
		keys = append(keys, prefix+key)
		below := t.Field(i).Type
		if below.Kind() == reflect.Pointer || below.Kind() == reflect.Slice {
			below = below.Elem()
		}
		if below.Kind() == reflect.Struct && below != reflect.TypeFor[Duration]() {
			keys = append(keys, keysOf(below, prefix+key+".")...)
		}
	}
	return keys
}
