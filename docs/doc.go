// Package docs has no code. Its directory holds the documentation, of which
// `go generate` (make docs) draws the figures.
package docs

//go:generate go run ./internal/policydocs figures policies
