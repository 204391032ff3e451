package record

// FirstSightings looks at the first request of each family, by its start or, where
// none are known, in the order of reqs, to tell whether the caches knew the families before: told is how many of them say
// what they hit, warm how many of these found over half of their prompt. Requests
// without a family are one family.
func FirstSightings(reqs []Request) (told, warm int) {
	first := make(map[Int]*Request)
	for i := range reqs {
		r := &reqs[i]
		if r.Outcome() == DroppedArrival {
			continue
		}
		if seen := first[r.Family]; seen == nil || r.Started.Or(0) < seen.Started.Or(0) {
			first[r.Family] = r
		}
	}
	for _, r := range first { // the sums do not depend on the order
		if cached, ok := r.CachedTokens.Get(); ok {
			told++
			if 2*cached > r.InputTokens.Or(cached) {
				warm++
			}
		}
	}
	return told, warm
}
