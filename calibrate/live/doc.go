// Package live drives a live gateway with the load of a scenario and records
// what its client sees, in the same records as a simulated run.
//
// The client is a plain one: it sends each request when it is due, however late
// the answers are; it retries only when asked; it reads streams by the standard
// and calls nothing a success that lacks content, an end or its token counts.
// Each behaviour of a server that it must tell from a success has a category of
// its own (docs/live.md).
package live
