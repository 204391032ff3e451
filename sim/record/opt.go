package record

import (
	"encoding/json"
	"fmt"
)

// An Opt is a value that may be absent. The zero Opt is absent, so a field that
// nobody filled in cannot pass for a measured zero; in JSON absent is null.
// Opts are comparable with ==.
type Opt[T float64 | int | uint64 | bool] struct {
	v  T
	ok bool
}

// The usual optional types.
type (
	Float = Opt[float64]
	Int   = Opt[int]
	Uint  = Opt[uint64]
	Bool  = Opt[bool]
)

// Some is the present value v. A float that is NaN or infinite is no measurement:
// Some of it is absent.
func Some[T float64 | int | uint64 | bool](v T) Opt[T] {
	if f, isFloat := any(v).(float64); isFloat && !finite(f) {
		return Opt[T]{}
	}
	return Opt[T]{v: v, ok: true}
}

// Get is the value and whether there is one; without one the value is zero.
func (o Opt[T]) Get() (v T, ok bool) { return o.v, o.ok }

// Valid reports whether there is a value.
func (o Opt[T]) Valid() bool { return o.ok }

// Or is the value, or def when there is none.
func (o Opt[T]) Or(def T) T {
	if o.ok {
		return o.v
	}
	return def
}

// IsZero reports absence; encoding/json's omitzero asks it.
func (o Opt[T]) IsZero() bool { return !o.ok }

// String is the value for people; "-" when absent.
func (o Opt[T]) String() string {
	if !o.ok {
		return "-"
	}
	return fmt.Sprint(o.v)
}

// MarshalJSON writes the value, or null when it is absent.
func (o Opt[T]) MarshalJSON() ([]byte, error) { return appendOpt(nil, o), nil }

// UnmarshalJSON reads a value or null.
func (o *Opt[T]) UnmarshalJSON(data []byte) error {
	*o = Opt[T]{}
	if string(data) == "null" {
		return nil
	}
	if err := json.Unmarshal(data, &o.v); err != nil {
		return err
	}
	o.ok = true
	return nil
}

// finite reports whether f is a number: the others, less themselves, are NaN.
func finite(f float64) bool { return f-f == 0 }
