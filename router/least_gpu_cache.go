package router

func init() {
	registerMetric("least-gpu-cache", tieRandom, func(pods []Pod, scores []float64) {
		for i := range pods {
			scores[i] = pods[i].Metrics.GPUCacheUsage.Or(missing())
		}
	})
}
