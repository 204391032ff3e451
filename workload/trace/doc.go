// Package trace reads and writes other people's request traces and load
// generator results as one stream of neutral rows, which a simulation replays,
// a calibration fits and a conversion writes in another format.
//
// Open finds the format by looking at the beginning of the input, decompresses
// gzip, and gives the rows in order of time in constant memory for the
// line-by-line formats. What a format calls a failure, and rows that lack what
// a replay needs, are left out and counted in the Report. The facts about each
// format, and whether they were checked against a sample or taken from public
// documentation, are in docs/traces.md.
package trace
