package router

func init() {
	registerMetric("least-busy-time", tieFirst, func(pods []Pod, scores []float64) {
		for i := range pods {
			scores[i] = pods[i].Metrics.BusyTimeRatio.Or(missing())
		}
	})
}
