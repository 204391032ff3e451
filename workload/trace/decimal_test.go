package trace

import (
	"encoding/json"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/simtime"
)

func TestInstants(t *testing.T) {
	for _, c := range []struct {
		in   string
		unit TimeUnit
		want instant
	}{
		{"0", Seconds, instant{}},
		{"-0.0", Seconds, instant{}},
		{"1.5", Seconds, instant{1, simtime.Second / 2}},
		{"1500", Milliseconds, instant{1, simtime.Second / 2}},
		{"0.00000000001", Seconds, instant{0, 1}},
		{"0.000000000005", Seconds, instant{0, 1}},
		{"0.0000000000049", Seconds, instant{0, 0}},
		{"0.999999999999", Seconds, instant{1, 0}},
		{"1.786678148e9", Seconds, instant{1786678148, 0}},
		{"12E-1", Seconds, instant{1, simtime.Second / 5}},
		{"1759813207532900363", Nanoseconds, instant{1759813207, 532900363 * simtime.Nanosecond}},
		{"1e-400", Seconds, instant{}},
		{"1e-99999999999999999999", Seconds, instant{}},
		{"0.000e5", Seconds, instant{}},
		{"100", Microseconds, instant{0, 100 * simtime.Microsecond}},
	} {
		d := parseDecimal([]byte(c.in))
		got, err := d.instant(c.unit)
		require.NoError(t, err, c.in)
		require.Equal(t, c.want, got, c.in)
	}
	for _, bad := range []string{"-1", "-0.00001", "1e16", "1e99999999999999999999", "99999999999999999999"} {
		d := parseDecimal([]byte(bad))
		_, err := d.instant(Seconds)
		require.Error(t, err, bad)
	}
}

// TestInstantIsExact checks any decimal against big rationals.
func TestInstantIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`(0|[1-9][0-9]{0,11})(\.[0-9]{1,15})?([eE][+-]?[0-2])?`).Draw(t, "number")
		unit := rapid.SampledFrom([]TimeUnit{Seconds, Milliseconds, Microseconds, Nanoseconds}).Draw(t, "unit")
		d := parseDecimal([]byte(text))
		got, err := d.instant(unit)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := new(big.Rat).SetString(text)
		for range -unit.exponent() {
			want.Quo(want, big.NewRat(10, 1))
		}
		ticks := want.Mul(want, new(big.Rat).SetInt64(int64(simtime.Second)))
		ticks.Add(ticks, big.NewRat(1, 2)) // rounds half up
		floor := new(big.Int).Quo(ticks.Num(), ticks.Denom())
		have := new(big.Int).Mul(big.NewInt(got.sec), big.NewInt(int64(simtime.Second)))
		have.Add(have, big.NewInt(int64(got.frac)))
		if have.Cmp(floor) != 0 {
			t.Fatalf("%s %v: %v ticks, want %v", text, unit, have, floor)
		}
	})
}

func TestSecondsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := simtime.Time(rapid.Int64Range(0, int64(simtime.Never)).Draw(t, "time"))
		text := appendSeconds(nil, want)
		if !json.Valid(text) {
			t.Fatalf("%s is no JSON number", text)
		}
		d := parseDecimal(text)
		at, err := d.instant(Seconds)
		if err != nil {
			t.Fatal(err)
		}
		if got := simtime.Time(at.sec)*simtime.Second + at.frac; got != want {
			t.Fatalf("%s: %d, want %d", text, got, want)
		}
	})
}

func TestDates(t *testing.T) {
	for in, want := range map[string]instant{
		"1970-01-01 00:00:00":                 {},
		"2023-11-16 18:17:03.9799600":         {1700158623, 97996000000},
		"2024-05-10 00:00:00.009930+00:00":    {1715299200, 993000000},
		"2024-05-10T00:00:00Z":                {1715299200, 0},
		"2024-05-10 08:00:00+08:00":           {1715299200, 0},
		"2024-05-09 18:30:00-0530":            {1715299200, 0},
		"2024-05-10 02:00:00+02":              {1715299200, 0},
		"2024-02-29 00:00:00.12345678901 UTC": {1709164800, 12345678901},
	} {
		got, err := parseDate([]byte(in))
		require.NoError(t, err, in)
		require.Equal(t, want, got, in)
	}
	for _, bad := range []string{"", "2024-05-10", "2024-13-01 00:00:00", "2023-02-29 00:00:00", "2024-05-10 24:00:00",
		"2024-05-10 00:60:00", "2024-05-10 00:00:60", "2024-05-10 00:00:00.", "2024-05-10 00:00:00 CET", "2024-05-10 00:00:00+8",
		"2024-05-10 00:00:00+08:60", "20x4-05-10 00:00:00", "2024/05/10 00:00:00"} {
		_, err := parseDate([]byte(bad))
		require.Error(t, err, bad)
	}
}

func TestInstantArithmetic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := instant{rapid.Int64Range(0, 1<<40).Draw(t, "sec"), simtime.Time(rapid.Int64Range(0, int64(simtime.Second)-1).Draw(t, "frac"))}
		d := simtime.Time(rapid.Int64Range(-1e18, 1e18).Draw(t, "span"))
		b := a.add(d)
		if b.frac < 0 || b.frac >= simtime.Second {
			t.Fatalf("fraction %d", b.frac)
		}
		if got, ok := b.since(a); !ok || got != d {
			t.Fatalf("%v, want %v", got, d)
		}
		if b.before(a) != (d < 0) {
			t.Fatal("order")
		}
	})
}
