package router

func init() {
	registerMetric("least-utilization", tieRandom, func(pods []Pod, scores []float64) {
		for i := range pods {
			scores[i] = pods[i].Metrics.Utilization.Or(missing())
		}
	})
}
