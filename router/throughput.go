package router

func init() {
	// The original takes the pod with the fewest tokens a request, prompt tokens
	// counting twice.
	registerMetric("throughput", tieRandom, func(pods []Pod, scores []float64) {
		for i := range pods {
			m := &pods[i].Metrics
			scores[i] = 2*m.PromptTokens.Or(missing()) + m.OutputTokens.Or(missing())
		}
	})
}
