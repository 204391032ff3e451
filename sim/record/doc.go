// Package record is the one schema for measured and simulated runs: a Request
// record per request and a Phase record per measured phase, their reading and
// writing, and the statistics made from them.
//
// The names are those of the two published studies, so that a simulated run can
// be calibrated on, compared and plotted exactly like a measured one. Times are
// in seconds (TPOT in seconds per token), cache figures in tokens, ratios 0 to 1.
// What was not measured is absent and written as null, never as 0 or NaN: that is
// what Opt is for, and why a ratio over nothing has no value.
//
// The words, as the studies use them:
//
//   - planned arrivals = dropped + sent; a dropped arrival is one that the client
//     never sent;
//   - requests = those sent = success + rejected + failed;
//   - errors = rejected (429) + failed (everything else that is no success);
//   - TTFT: from sending to the first content; E2E: from sending to the end of the
//     stream; TPOT: one mean per request, (last content − first content) over the
//     output tokens received less one.
package record
