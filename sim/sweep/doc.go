// Package sweep runs one scenario at many settings and says what the results
// show: which settings meet the constraints, which is best, and how sure that
// is.
//
// A sweep file (Load) becomes a Sweep: cells, each a complete scenario under
// one policy. All cells see the same seeds, so that two cells differ by their
// settings and not by their luck (common random numbers), and differences are
// taken seed by seed. Execute runs the cells, or a shard of them, and keeps
// every finished run in a log that survives being killed; Write, Merge and
// Open write, join and read result directories.
package sweep
