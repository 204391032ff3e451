package router

func init() {
	// A missing addend makes the sum NaN, so both metrics are needed.
	registerMetric("least-kv-cache", tieLast, func(pods []Pod, scores []float64) {
		for i := range pods {
			m := &pods[i].Metrics
			scores[i] = m.KVCacheUsage.Or(missing()) + m.CPUCacheUsage.Or(missing())
		}
	})
}
