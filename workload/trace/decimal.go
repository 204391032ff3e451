package trace

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"fleetsim/simtime"
)

// A TimeUnit is the unit of a source's numbers.
type TimeUnit int8

// The units; Default is the format's own.
const (
	DefaultUnit  TimeUnit = 0
	Seconds      TimeUnit = 1
	Milliseconds TimeUnit = -3
	Microseconds TimeUnit = -6
	Nanoseconds  TimeUnit = -9
)

// ParseTimeUnit reads a unit's name: s, ms, us or ns. "" is the format's own.
func ParseTimeUnit(s string) (TimeUnit, error) {
	for _, u := range []TimeUnit{Seconds, Milliseconds, Microseconds, Nanoseconds} {
		if s == u.String() {
			return u, nil
		}
	}
	if s == "" {
		return DefaultUnit, nil
	}
	return DefaultUnit, fmt.Errorf("time unit %q: want s, ms, us or ns", s)
}

// String is the unit's name.
func (u TimeUnit) String() string {
	switch u {
	case Seconds:
		return "s"
	case Milliseconds:
		return "ms"
	case Microseconds:
		return "us"
	case Nanoseconds:
		return "ns"
	default:
		return "default"
	}
}

// exponent is the power of ten that makes seconds of the unit.
func (u TimeUnit) exponent() int {
	if u >= 0 {
		return 0
	}
	return int(u)
}

// fractionDigits is the number of decimals of a second that a tick resolves.
const fractionDigits = 11

// An instant is a point on any clock, Unix time included, to the tick. Unix times
// in ticks are beyond an int64, hence the two parts.
type instant struct {
	sec  int64
	frac simtime.Time // 0 ≤ frac < simtime.Second
}

func (a instant) before(b instant) bool {
	return a.sec < b.sec || a.sec == b.sec && a.frac < b.frac
}

// maxSpanSeconds is the longest span that a run can have, in whole seconds.
const maxSpanSeconds = int64(simtime.Horizon / simtime.Second)

// maxSpan is the longest duration that is read.
const maxSpan = simtime.Time(maxSpanSeconds) * simtime.Second

// since is a - b; ok is false when simtime cannot hold it.
func (a instant) since(b instant) (t simtime.Time, ok bool) {
	d := a.sec - b.sec
	if d > maxSpanSeconds || d < -maxSpanSeconds {
		return 0, false
	}
	t = simtime.Time(d)*simtime.Second + a.frac - b.frac
	return t, -maxSpan <= t && t <= maxSpan
}

func (a instant) add(t simtime.Time) instant {
	frac := a.frac + t%simtime.Second
	sec := a.sec + int64(t/simtime.Second)
	if frac < 0 {
		sec, frac = sec-1, frac+simtime.Second
	}
	if frac >= simtime.Second {
		sec, frac = sec+1, frac-simtime.Second
	}
	return instant{sec, frac}
}

// String is the instant in seconds.
func (a instant) String() string {
	s := strconv.AppendInt(nil, a.sec, 10)
	if a.frac > 0 {
		s = append(s, appendSeconds(nil, a.frac)[1:]...)
	}
	return string(s) + "s"
}

// A decimal is a JSON number taken apart: digits without leading zeros, with the
// decimal point after point of them (which may be before the first or behind the
// last).
type decimal struct {
	negative bool
	digits   [40]byte
	n        int
	point    int
}

// maxExponent bounds the exponents that are looked at; anything beyond is as
// good as zero or infinite.
const maxExponent = 400

// parseDecimal takes s, which must follow JSON's grammar for numbers, apart.
// Digits after the fortieth are dropped.
func parseDecimal(s []byte) decimal {
	var d decimal
	i := 0
	if i < len(s) && s[i] == '-' {
		d.negative, i = true, 1
	}
	seenPoint := false
	for ; i < len(s) && s[i] != 'e' && s[i] != 'E'; i++ {
		switch {
		case s[i] == '.':
			seenPoint = true
		case d.n == 0 && s[i] == '0':
			if seenPoint {
				d.point--
			}
		default:
			if d.n < len(d.digits) {
				d.digits[d.n] = s[i]
				d.n++
			}
			if !seenPoint {
				d.point++
			}
		}
	}
	if i < len(s) {
		d.point += parseExponent(s[i+1:])
	}
	for d.n > 0 && d.digits[d.n-1] == '0' {
		d.n--
	}
	return d
}

func parseExponent(s []byte) int {
	sign, e := 1, 0
	for _, c := range s {
		switch {
		case c == '-':
			sign = -1
		case c != '+' && e < maxExponent:
			e = e*10 + int(c-'0')
		}
	}
	return sign * min(e, maxExponent)
}

// whole reports whether d has no fraction.
func (d *decimal) whole() bool { return d.n == 0 || d.point >= d.n }

// uint64 is d as a whole number; ok is false when it has a sign, a fraction or
// more than 64 bits.
func (d *decimal) uint64() (v uint64, ok bool) {
	if d.n == 0 {
		return 0, true
	}
	if d.negative || !d.whole() || d.point > 20 {
		return 0, false
	}
	for i := range d.point {
		digit := uint64(0)
		if i < d.n {
			digit = uint64(d.digits[i] - '0')
		}
		if v > (math.MaxUint64-digit)/10 {
			return 0, false
		}
		v = v*10 + digit
	}
	return v, true
}

// instant is d, in unit u, to the nearest tick. It fails on negative values and
// on those beyond 10^15 seconds.
func (d *decimal) instant(u TimeUnit) (instant, error) {
	if d.n == 0 {
		return instant{}, nil
	}
	if d.negative {
		return instant{}, fmt.Errorf("is negative")
	}
	point := d.point + u.exponent()
	if point > 15 {
		return instant{}, fmt.Errorf("is beyond 10^15 s")
	}
	var t instant
	for i := range max(point, 0) {
		t.sec = t.sec*10 + int64(d.digit(i))
	}
	for i := range fractionDigits {
		t.frac = t.frac*10 + simtime.Time(d.digit(point+i))
	}
	if d.digit(point+fractionDigits) >= 5 {
		t = t.add(simtime.Tick)
	}
	return t, nil
}

// digit is the i-th digit counted from the first significant one, which itself
// is 0; places before it and behind the last are zeros.
func (d *decimal) digit(i int) byte {
	if i < 0 || i >= d.n {
		return 0
	}
	return d.digits[i] - '0'
}

// appendSeconds appends t in seconds with as many decimals as it takes to be
// exact, and no more.
func appendSeconds(dst []byte, t simtime.Time) []byte {
	return appendScaled(dst, t, simtime.Second, fractionDigits)
}

// appendScaled appends t in units of unit, which is 10^digits ticks.
func appendScaled(dst []byte, t, unit simtime.Time, digits int) []byte {
	if t < 0 {
		dst = append(dst, '-')
	}
	whole, frac := t/unit, t%unit
	if whole < 0 {
		whole = -whole
	}
	if frac < 0 {
		frac = -frac
	}
	dst = fmt.Appendf(dst, "%d", int64(whole))
	if frac == 0 {
		return dst
	}
	for frac%10 == 0 {
		frac /= 10
		digits--
	}
	return fmt.Appendf(dst, ".%0*d", digits, int64(frac))
}

// parseDate reads a date and time: YYYY-MM-DD, a space or T, HH:MM:SS, then
// optionally a fraction and a zone (Z, ±HH:MM, ±HHMM or ±HH). Without a zone it
// is taken as UTC.
func parseDate(s []byte) (instant, error) {
	const shape = "0000-00-00 00:00:00"
	bad := fmt.Errorf("is no date and time like 2024-05-10 00:00:00.009930+00:00")
	if len(s) < len(shape) {
		return instant{}, bad
	}
	for i, c := range []byte(shape) {
		switch {
		case c == '0' && (s[i] < '0' || s[i] > '9'):
			return instant{}, bad
		case c == ' ' && s[i] != ' ' && s[i] != 'T' && s[i] != 't':
			return instant{}, bad
		case c != '0' && c != ' ' && s[i] != c:
			return instant{}, bad
		}
	}
	num := func(from, to int) (v int) {
		for _, c := range s[from:to] {
			v = v*10 + int(c-'0')
		}
		return v
	}
	year, month, day := num(0, 4), num(5, 7), num(8, 10)
	hour, minute, second := num(11, 13), num(14, 16), num(17, 19)
	when := time.Date(year, time.Month(month), day, hour, minute, second, 0, time.UTC)
	if month < 1 || month > 12 || when.Day() != day || hour > 23 || minute > 59 || second > 59 {
		return instant{}, fmt.Errorf("is no date in the calendar")
	}
	t := instant{sec: when.Unix()}
	rest := s[len(shape):]
	if len(rest) > 0 && rest[0] == '.' {
		n := 1
		for n < len(rest) && rest[n] >= '0' && rest[n] <= '9' {
			n++
		}
		if n == 1 {
			return instant{}, bad
		}
		d := parseDecimal(append([]byte{'0'}, rest[:n]...))
		frac, err := d.instant(Seconds)
		if err != nil {
			return instant{}, err
		}
		t = t.add(simtime.Time(frac.sec)*simtime.Second + frac.frac)
		rest = rest[n:]
	}
	zone, ok := parseZone(rest)
	if !ok {
		return instant{}, fmt.Errorf("has the zone %q: want Z or an offset like +08:00", rest)
	}
	t.sec -= int64(zone)
	return t, nil
}

// parseZone is the offset east of UTC in seconds.
func parseZone(s []byte) (seconds int, ok bool) {
	if len(s) == 0 || string(s) == "Z" || string(s) == "z" || string(s) == " UTC" {
		return 0, true
	}
	sign := 1
	switch s[0] {
	case '-':
		sign = -1
	case '+':
	default:
		return 0, false
	}
	var digits []byte
	for i, c := range s[1:] {
		switch {
		case c >= '0' && c <= '9':
			digits = append(digits, c-'0')
		case c != ':' || i != 2:
			return 0, false
		}
	}
	if len(digits) == 2 {
		digits = append(digits, 0, 0)
	}
	if len(digits) != 4 {
		return 0, false
	}
	hours, minutes := int(digits[0]*10+digits[1]), int(digits[2]*10+digits[3])
	return sign * (hours*3600 + minutes*60), hours < 24 && minutes < 60
}
